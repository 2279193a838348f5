#!/bin/sh
# Writes what clients need to come in as admin, into the folder that secrets.sh made: client.properties for Java's clients and
# tools, librdkafka.properties for librdkafka (kcat -F), and a profile for the tierlog command (--profile NAME).
#
# usage: clients.sh FOLDER NAME BOOTSTRAP_SERVERS HTTP_URL
set -eu
umask 077
[ $# -eq 4 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
folder=$(cd "$1" && pwd) name=$2 servers=$3 url=$4
password=$(cat "$folder/admin.password")
profiles=${XDG_CONFIG_HOME:-$HOME/.config}/tierlog/config.toml

common="bootstrap.servers=$servers
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512"
cat >"$folder/client.properties" <<END
$common
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="$password";
ssl.truststore.type=PEM
ssl.truststore.location=$folder/ca.pem
END
cat >"$folder/librdkafka.properties" <<END
$common
sasl.username=admin
sasl.password=$password
ssl.ca.location=$folder/ca.pem
END
mkdir -p "$(dirname "$profiles")"
if grep -qsF "[$name]" "$profiles"; then
  echo "$profiles has a profile $name already: it is left as it is" >&2
else
  cat >>"$profiles" <<END

[$name]
server = "$url"
ca = "$folder/ca.pem"
user = "admin"
password = "file:$folder/admin.password"
END
fi
echo "kcat -F $folder/librdkafka.properties -L"
echo "tierlog cluster status --profile $name"
