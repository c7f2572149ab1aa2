#!/usr/bin/env bash
# The paper's WMT14 experiment: prepare, train, average, evaluate newstest2014, write the report.
#
#   scripts/reproduce.sh base trainer.devices=8 trainer.precision=bf16-mixed
#   scripts/reproduce.sh big data.path=FOLDER      # a copy of wmt/wmt14 instead of the hub
#   scripts/reproduce.sh base --limit 100000       # a trial: few pairs, few steps, a tiny model
#
# Other arguments are settings of mt.train. After an interruption, the same command continues.
set -euo pipefail

usage="usage: scripts/reproduce.sh base|big [--limit PAIRS] [SETTING=VALUE ...]"
case "${1:-}" in
    base) paper=27.3 ;;
    big) paper=28.4 ;;
    *) echo "$usage" >&2; exit 2 ;;
esac
command="scripts/reproduce.sh $*"
size=$1
shift
run=outputs/reproduce-$size
settings=()
sentences=null
if [[ "${1:-}" == --limit ]]; then
    [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || { echo "$usage" >&2; exit 2; }
    run+=-$2
    sentences=$2
    settings=(data.limit="$2" data.validation_limit=100 data.tokens_per_step=2000 model=tiny
        tokenizer.vocab_size=4000 trainer.max_steps=20 checkpoint_every=4 validate_every=10)
    shift 2
fi
settings+=("$@")
data=() # the settings that evaluation needs too
for setting in "$@"; do
    [[ $setting == -* ]] && { echo "$usage" >&2; exit 2; }
    [[ $setting == data.path=* || $setting == data.config=* ]] && data+=("$setting")
done
scripts=$(dirname "$0")
versions='import pytorch_lightning as pl, torch
device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
print(f"torch {torch.__version__}, Lightning {pl.__version__}, {device}")'
mkdir -p "$run"

echo "== prepare"
python "$scripts/prepare_data.py" experiment=wmt14_"$size" ${settings[@]+"${settings[@]}"} | tee "$run/prepare.txt"

echo "== train"
python -m mt.train experiment=wmt14_"$size" ${settings[@]+"${settings[@]}"} hydra.run.dir="$run" ckpt=auto

echo "== average" # training did this for $run/model; the report shows it once more
rm -rf "$run/average"
python "$scripts/average_checkpoints.py" "$run"/checkpoints/step-*.ckpt --output "$run/average"

echo "== evaluate newstest2014"
python -m mt.evaluate data=wmt14 split=test limit="$sentences" ${data[@]+"${data[@]}"} \
    model_path="$run/average" "search.beam_size=[1,4]" hydra.run.dir="$run/newstest2014" |
    tee "$run/newstest2014.txt"

cat > "$run/.report.md" << END
# WMT14 English→German, the paper's $size model

    $command

$(date -u +%F), $(python -c "$versions")

The paper: $paper, tokenised BLEU with compounds split, beam 4, on all 3,003 sentences of
newstest2014. Only the score of that name below may be compared with it.

\`\`\`
$(cat "$run/newstest2014.txt")
\`\`\`

Data:

\`\`\`
$(cat "$run/prepare.txt")
\`\`\`

The model, as training wrote it:

$(sed 's/^#/##/' "$run/model/README.md")
END
mv "$run/.report.md" "$run/report.md"
echo
echo "report  $run/report.md"
