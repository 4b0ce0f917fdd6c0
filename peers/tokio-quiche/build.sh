#!/bin/sh
# Builds peer-tokio-quiche and endpoint-quiche into the folder where `interop` and `bench` look for
# programs that peers/'s own cargo workspace does not build. BoringSSL, which quiche stands on, wants
# cmake and a C++ compiler; its bindings want libclang, which is taken from PyPI if the system has none.
set -eu
cd "$(dirname "$0")"
programs=${CLEARWAY_PEERS:-$HOME/.cache/clearway/bin}
clang=${CLEARWAY_LIBCLANG:-$HOME/.cache/clearway/libclang}
target=${CARGO_TARGET_DIR:-$PWD/target}
for tool in cmake c++; do
    command -v "$tool" > /dev/null || { echo "tokio-quiche: not built, because $tool is not installed"; exit 1; }
done
if [ -z "${LIBCLANG_PATH:-}" ] && ! ldconfig -p | grep -qE 'libclang(-[0-9.]+)?\.so'; then
    [ -d "$clang" ] || python3 -m pip install --quiet --target "$clang" 'libclang==18.1.1'
    LIBCLANG_PATH=$clang/clang/native
    # PyPI's libclang comes without the headers of a compiler.
    BINDGEN_EXTRA_CLANG_ARGS="-I$(cc -print-file-name=include)"
    export LIBCLANG_PATH BINDGEN_EXTRA_CLANG_ARGS
fi
CARGO_TARGET_DIR=$target ${CARGO:-cargo} build --release
mkdir -p "$programs"
for program in peer-tokio-quiche endpoint-quiche; do
    cp "$target/release/$program" "$programs/"
    echo "$programs/$program"
done
