#!/bin/sh
# Makes an authority, a certificate for the members of etcd and one for its clients, and puts all but the authority's key
# into SSM's parameter store. Keys never reach Terraform's state. The authority's key stays in the folder: keep it safe,
# the next certificates need it.
#
# usage: certificates.sh [--key-id KMS_KEY] FOLDER PARAMETER_PATH DNS_NAME...
set -eu
umask 077
key_id=
if [ "${1:-}" = --key-id ] && [ $# -ge 2 ]; then
  key_id=$2
  shift 2
fi
[ $# -ge 3 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
folder=$1 path=$2
shift 2
mkdir -p "$folder"
cd "$folder"
key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1"

# issue NAME USAGE SUBJECT_ALTERNATIVES
issue() {
  openssl req $key -nodes -keyout "$1-key.pem" -subj "/CN=tierlog-etcd-$1" -out "$1.csr" 2>/dev/null
  { echo "basicConstraints=CA:FALSE"; echo "extendedKeyUsage=$2"; [ -z "$3" ] || echo "subjectAltName=$3"; } >"$1.ext"
  openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 825 -sha256 -extfile "$1.ext" \
    -out "$1-cert.pem" 2>/dev/null
  rm "$1.csr" "$1.ext"
}

# put NAME FILE
put() {
  aws ssm put-parameter --type SecureString ${key_id:+--key-id "$key_id"} --overwrite --name "$path/$1" --value "file://$2" >/dev/null
}

[ -e ca-key.pem ] || openssl req -x509 $key -nodes -keyout ca-key.pem -out ca.pem -days 3650 -sha256 -subj "/CN=tierlog-etcd" \
  -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" 2>/dev/null
# Members are clients of each other.
names=
for name in "$@"; do names="$names,DNS:$name"; done
issue member serverAuth,clientAuth "${names#,}"
issue client clientAuth ""
put ca ca.pem
put member-cert member-cert.pem
put member-key member-key.pem
put client-cert client-cert.pem
put client-key client-key.pem
echo "certificates for $* are in $path; keep $folder/ca-key.pem safe"
