# The server with Python and the frameworks of packaging/docker/requirements.txt, PyTorch without CUDA.
# `docker build --file packaging/docker/all.Dockerfile --tag mlserver:VERSION .`, after packaging/docker/slim.Dockerfile; or
# `mlserver build --base-images` for both.
ARG SERVER=mlserver:1.8.0-slim
ARG BASE=python:3.12-slim
FROM ${SERVER} AS server

FROM ${BASE} AS environment
RUN python3 -m venv /opt/environment
ARG PIP_INDEX_URL
# The index of PyTorch without CUDA; PyPI has only the version with CUDA, which takes 4 GB more.
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
ARG PIP_TRUSTED_HOST
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
COPY packaging/docker/requirements.txt /tmp/requirements.txt
RUN --mount=type=cache,target=/root/.cache/pip /opt/environment/bin/python -m pip install --requirement /tmp/requirements.txt

FROM ${BASE}
# LightGBM's wheel uses the system's OpenMP.
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
COPY --from=environment /opt/environment /opt/environment
COPY --from=server /usr/local/bin/mlserver /opt/environment/bin/mlserver
# Writable by any user of group 0, because OpenShift assigns arbitrary user ids.
RUN mkdir -p /opt/mlserver/.cache && chown -R 1000:0 /opt/mlserver && chmod -R g=u /opt/mlserver
ENV PATH=/opt/environment/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENV XDG_CACHE_HOME=/opt/mlserver/.cache HF_HOME=/opt/mlserver/.cache NUMBA_CACHE_DIR=/opt/mlserver/.cache
# The default location of models in KServe and Seldon, which also set these variables and so override them.
ENV MODELS_DIR=/mnt/models MLSERVER_ENV_TARBALL=/mnt/models/environment.tar.gz HOME=/opt/mlserver
WORKDIR /opt/mlserver
USER 1000
EXPOSE 8080 8081 8082
CMD ["/opt/environment/bin/mlserver", "start"]
