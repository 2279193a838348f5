#!/bin/sh
# Makes the authority that signs brokers' certificates and the password of the first user, admin, and puts them into SSM's
# parameter store. They never reach Terraform's state or user data. What is in the folder already is kept. Keep the folder
# safe: clients.sh needs it, and whoever has it can do everything.
#
# usage: secrets.sh [--key-id KMS_KEY] FOLDER PARAMETER_PATH
set -eu
umask 077
key_id=
if [ "${1:-}" = --key-id ] && [ $# -ge 2 ]; then
  key_id=$2
  shift 2
fi
[ $# -eq 2 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
folder=$1 path=$2
mkdir -p "$folder"
cd "$folder"

# put NAME FILE
put() {
  aws ssm put-parameter --type SecureString ${key_id:+--key-id "$key_id"} --overwrite --name "$path/$1" --value "file://$2" >/dev/null
}

[ -e ca.key ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem -days 1825 \
  -sha256 -subj "/CN=tierlog authority $(openssl rand -hex 4)" -addext "basicConstraints=critical,CA:TRUE,pathlen:0" \
  -addext "keyUsage=critical,keyCertSign,cRLSign" 2>/dev/null
[ -e admin.password ] || openssl rand -hex 24 | tr -d '\n' >admin.password
put ca ca.pem
put ca-key ca.key
put admin-password admin.password
echo "the authority and the password of admin are in $path; keep $folder safe"
