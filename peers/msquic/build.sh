#!/bin/sh
# Builds endpoint-msquic into the folder of programs that peers/'s own cargo workspace does not build.
# The crate msquic brings its C and that of its TLS, and wants cmake and a C++ compiler.
set -eu
cd "$(dirname "$0")"
programs=${CLEARWAY_PEERS:-$HOME/.cache/clearway/bin}
output=${CLEARWAY_MSQUIC:-$HOME/.cache/clearway/msquic}
target=${CARGO_TARGET_DIR:-$PWD/target}
for tool in cmake c++; do
    command -v "$tool" > /dev/null || { echo "msquic: not built, because $tool is not installed"; exit 1; }
done
CARGO_TARGET_DIR=$target ${CARGO:-cargo} build --release
# The crate links its library dynamically, and leaves it in the folder of its build.
mkdir -p "$programs" "$output"
cp "$target/release/endpoint-msquic" "$output/"
find "$target/release/build" -path '*/out/*' -name 'libmsquic.so*' -exec cp -P {} "$output/" \;
printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s/endpoint-msquic"\n' "$output" "$output" \
    > "$programs/endpoint-msquic"
chmod +x "$programs/endpoint-msquic"
echo "$programs/endpoint-msquic"
