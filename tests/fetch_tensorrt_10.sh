#!/usr/bin/env bash
# Puts the libraries of TensorRT 10.15.1 (core, parser) into a folder, from Maven Central's redistributable jar (over 2 GB),
# and prints what to set. Needs mvn and unzip. EDGE_TENSORRT_10_MAVEN names another version of the artifact (10.6-1.5.11 is TensorRT
# 10.6.0, measured on an H200); EDGE_TENSORRT_10_BUILDER=1 takes the builder's library too (1.4 GB more), which building on a GPU needs.
# usage: tests/fetch_tensorrt_10.sh [FOLDER]     default: ~/.cache/edge-trt/tensorrt-10
set -euo pipefail
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/edge-trt/tensorrt-10}
artifact=org.bytedeco:tensorrt:${EDGE_TENSORRT_10_MAVEN:-10.15-1.5.13}:jar:linux-x86_64-redist
if [ ! -e "$folder/libnvinfer.so.10" ] || [ ! -e "$folder/libnvonnxparser.so.10" ]; then
    mkdir -p "$folder"
    aside=$(mktemp -d "$folder/fetch.XXXXXX")
    trap 'rm -rf "$aside"' EXIT
    mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
        -Dartifact="$artifact" -DoutputDirectory="$aside" -Dmdep.useBaseVersion=true
    unzip -q -j -o "$aside"/*.jar '*/libnvinfer.so.10' '*/libnvonnxparser.so.10' -d "$aside"
    if [ -n "${EDGE_TENSORRT_10_BUILDER:-}" ]; then
        unzip -q -j -o "$aside"/*.jar '*/libnvinfer_builder_resource.so.10.*' -d "$aside"
        mv "$aside"/libnvinfer_builder_resource.so.10.* "$folder/"
    fi
    mv "$aside"/libnvinfer.so.10 "$aside"/libnvonnxparser.so.10 "$folder/"
fi
echo "export EDGE_TENSORRT_DIR=$folder"
