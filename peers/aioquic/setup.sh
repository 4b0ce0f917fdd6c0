#!/bin/sh
# Installs aioquic into an environment of its own, and peer-aioquic and endpoint-aioquic into the
# folder where `interop` looks for programs that cargo does not build.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
environment=${CLEARWAY_AIOQUIC:-$HOME/.cache/clearway/aioquic}
programs=${CLEARWAY_PEERS:-$HOME/.cache/clearway/bin}
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/pip" install --quiet --disable-pip-version-check 'aioquic==1.7.2'
mkdir -p "$programs"
printf '#!/bin/sh\nexec "%s/bin/python" "%s/peer.py" "$@"\n' "$environment" "$here" \
    > "$programs/peer-aioquic"
printf '#!/bin/sh\nexec "%s/bin/python" "%s/endpoint.py" "$@"\n' "$environment" "$here" \
    > "$programs/endpoint-aioquic"
chmod +x "$programs/peer-aioquic" "$programs/endpoint-aioquic"
echo "$programs/peer-aioquic"
echo "$programs/endpoint-aioquic"
