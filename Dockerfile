# The translation server with the bundled model; docs/serving.md shows how to build and run it.
FROM python:3.11-slim

# uv knows where PyTorch's CPU wheels are; the default ones bring gigabytes of CUDA along.
ARG INSTALL_TORCH="uv pip install --system --no-cache --torch-backend cpu"
RUN pip install --no-cache-dir uv && $INSTALL_TORCH 'torch>=2.5,<2.14'

WORKDIR /app

# The packages come before the code, so that a change of the code rebuilds the small layers alone.
COPY pyproject.toml ./
RUN python -c "import tomllib; \
    project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
    extras = project['optional-dependencies']; \
    print(*project['dependencies'], *extras['server'], *extras['documents'], sep='\n')" \
    > requirements.txt \
    && pip install --no-cache-dir --requirement requirements.txt

COPY LICENSE ./
COPY mt mt
# A read-only file system keeps no bytecode that Python would write later.
RUN python -m compileall -q mt && chmod -R a+rX /app

# The C++ is compiled for every kind of CPU that it knows; the compiler does not stay.
ARG APT=apt-get
RUN --mount=type=tmpfs,target=/var/lib/apt/lists \
    test "$(uname -m)" != x86_64 || { \
        $APT update && $APT install --yes --no-install-recommends g++ libgomp1 \
        && python -m mt.compile native && $APT purge --yes --auto-remove g++; }
ENV MT_NATIVE_FOLDER=/app/native

# What the program writes, such as a model of the hub, goes below /tmp.
# A new volume there has the owner that the folder has here.
RUN install -d -o 65534 -g 65534 /tmp/mt /tmp/huggingface
ENV PYTHONUNBUFFERED=1 HOME=/tmp MT_CACHE=/tmp/mt HF_HOME=/tmp/huggingface

# Debian's user nobody, by its number, by which Kubernetes sees that it is not root.
USER 65534:65534
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health/live', timeout=2)"]
CMD ["python", "-m", "mt.serve", "--host", "0.0.0.0"]
