# Only the server, in an otherwise empty image: enough for native models, and other images copy the server from it.
# `docker build --file packaging/docker/slim.Dockerfile --tag mlserver:VERSION-slim .` compiles it, linked statically;
# `mlserver build --base-images` uses the executable that runs it.
ARG RUST=rust:1.95-bookworm
# `build` compiles the source, `given` copies files from `server/` in the context.
ARG SOURCE=build

FROM ${RUST} AS build
WORKDIR /source
COPY . .
ARG MLSERVER_COMMIT
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/source/target \
    target="$(rustc -vV | sed -n 's/^host: //p')" && \
    RUSTFLAGS='-C target-feature=+crt-static' cargo build --profile dist --locked --target "$target" && \
    mkdir -p /server/usr/local/bin && cp "target/$target/dist/mlserver" /server/usr/local/bin/mlserver

FROM scratch AS given
COPY server/ /server/

FROM ${SOURCE} AS source

FROM scratch
COPY --from=source /server/ /
# The default location of models in KServe and Seldon, which also set these variables and so override them.
ENV MODELS_DIR=/mnt/models MLSERVER_ENV_TARBALL=/mnt/models/environment.tar.gz HOME=/tmp
WORKDIR /opt/mlserver
USER 1000
EXPOSE 8080 8081 8082
CMD ["/usr/local/bin/mlserver", "start"]
