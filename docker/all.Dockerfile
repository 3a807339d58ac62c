# The server with Python and the frameworks of docker/requirements.txt, PyTorch without CUDA.
# `docker build --file docker/all.Dockerfile --tag mlserver:VERSION .`, behind docker/slim.Dockerfile.
ARG SERVER=mlserver:2.0.0-slim
ARG BASE=python:3.12-slim
FROM ${SERVER} AS server

FROM ${BASE} AS environment
RUN python3 -m venv /opt/environment
ARG PIP_INDEX_URL
# Where PyTorch without CUDA is; the index of packages has it with CUDA alone, which takes 4 GB more.
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
ARG PIP_TRUSTED_HOST
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
COPY docker/requirements.txt /tmp/requirements.txt
RUN --mount=type=cache,target=/root/.cache/pip /opt/environment/bin/python -m pip install --requirement /tmp/requirements.txt

FROM ${BASE}
# LightGBM's wheel leaves OpenMP to the system.
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
COPY --from=environment /opt/environment /opt/environment
COPY --from=server /usr/local/bin/mlserver /opt/environment/bin/mlserver
# Any user of group 0 may write here: OpenShift makes up the number of its users.
RUN mkdir -p /opt/mlserver/.cache && chown -R 1000:0 /opt/mlserver && chmod -R g=u /opt/mlserver
ENV PATH=/opt/environment/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENV XDG_CACHE_HOME=/opt/mlserver/.cache HF_HOME=/opt/mlserver/.cache NUMBA_CACHE_DIR=/opt/mlserver/.cache
# Where KServe and Seldon put models: they set these, too, so other values win.
ENV MODELS_DIR=/mnt/models MLSERVER_ENV_TARBALL=/mnt/models/environment.tar.gz HOME=/opt/mlserver
WORKDIR /opt/mlserver
USER 1000
EXPOSE 8080 8081 8082
CMD ["/opt/environment/bin/mlserver", "start"]
