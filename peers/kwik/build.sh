#!/bin/sh
# Builds endpoint-kwik with Maven and a JDK of version 17 or newer: the program is put into the folder
# of programs that cargo does not build, and the libraries beside it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
programs=${CLEARWAY_PEERS:-$HOME/.cache/clearway/bin}
output=${CLEARWAY_KWIK:-$HOME/.cache/clearway/kwik}
for tool in java mvn; do
    command -v "$tool" > /dev/null || { echo "kwik: not built, because $tool is not installed"; exit 1; }
done
mkdir -p "$programs" "$output"
# The sources are copied, so that Maven leaves nothing here.
cp -R "$here/pom.xml" "$here/src" "$output/"
cd "$output"
mvn --batch-mode --quiet compile dependency:copy-dependencies
cat > "$programs/endpoint-kwik" << END
#!/bin/sh
exec java -Xshare:auto -XX:TieredStopAtLevel=1 -cp "$output/target/classes:$output/target/dependency/*" peer.Endpoint
END
chmod +x "$programs/endpoint-kwik"
echo "$programs/endpoint-kwik"
