#!/usr/bin/env bash
# Train a small English-German model on the phrasebook, score it and translate with it.
set -euo pipefail

python -m mt.train experiment=quickstart

echo
echo "Scores on the phrasebook's test split, which shares no sentence with training:"
python -m mt.evaluate data=phrasebook model_path=latest

echo
for sentence in "Where do you live?" "Tomorrow we are going to the lake." \
    "My sister bought a new red bicycle." "I can't come because I have to work."; do
    echo "$sentence"
    echo "    $(python -m mt.translate --model latest "$sentence" 2> /dev/null)"
done
echo
echo 'Your turn: .venv/bin/python -m mt.translate --model latest "..."'
