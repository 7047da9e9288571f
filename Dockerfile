# gsplit in a container: docker build -t gsplit . && docker run --rm -v "$PWD:/data" gsplit doctor
# It was not built yet: no Docker daemon ran where it was written. .github/workflows/release.yml builds it for each tag, and runs doctor in it.
# The image trains on CPUs. For GPUs, install a PyTorch 2.11 with CUDA in the second stage and set LD_LIBRARY_PATH to its torch/lib.

FROM rust:1-bookworm AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ make python3 python3-pip \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /gsplit
# libtorch first: it changes seldom.
COPY scripts/libtorch.py scripts/libtorch.lock scripts/
RUN python3 scripts/libtorch.py
COPY . .
# .dockerignore may leave .git out: git rev-parse --short=12 HEAD, for --version.
ARG GSPLIT_COMMIT=
RUN GSPLIT_COMMIT="$GSPLIT_COMMIT" make build

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libstdc++6 \
    && rm -rf /var/lib/apt/lists/*
# The programs look for libtorch in ../../libtorch/lib beside themselves.
COPY --from=build /gsplit/target/release/gsplit /gsplit/target/release/gsplit-train /gsplit/target/release/
COPY --from=build /gsplit/libtorch/lib /gsplit/libtorch/lib
COPY --from=build /gsplit/LICENSE /gsplit/LICENSE-APACHE /gsplit/LICENSE-MIT /gsplit/
ENV PATH=/gsplit/target/release:$PATH
WORKDIR /data
ENTRYPOINT ["gsplit"]
