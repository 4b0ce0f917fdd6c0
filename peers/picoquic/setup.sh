#!/bin/sh
# Installs picoquic, as the Python package aiopquic has it, into an environment of its own, and
# endpoint-picoquic into the folder of programs that cargo does not build. PYTHON names a Python of
# version 3.12 or newer.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
environment=${CLEARWAY_PICOQUIC:-$HOME/.cache/clearway/aiopquic}
programs=${CLEARWAY_PEERS:-$HOME/.cache/clearway/bin}
python=${PYTHON:-python3}
is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2> /dev/null; }
if ! is_recent "$environment/bin/python"; then
    is_recent "$python" || { echo "picoquic: not installed, because $python is not Python 3.12 or newer"; exit 1; }
    "$python" -m venv --clear "$environment"
fi
"$environment/bin/pip" install --quiet --disable-pip-version-check 'aiopquic==0.6.1'
mkdir -p "$programs"
printf '#!/bin/sh\nexec "%s/bin/python" "%s/endpoint.py" "$@"\n' "$environment" "$here" \
    > "$programs/endpoint-picoquic"
chmod +x "$programs/endpoint-picoquic"
echo "$programs/endpoint-picoquic"
