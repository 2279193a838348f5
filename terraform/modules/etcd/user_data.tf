# What a member is told at its first start. terraform/node holds the programs and units.

locals {
  node  = "${path.module}/../../node"
  units = ["tierlog-etcd-prepare.service", "tierlog-etcd.service", "tierlog-etcd-backup.service"]
  tls   = { for name in ["ca", "member-cert", "member-key"] : name => "/run/tierlog/${name}.pem" }

  environment = {
    for member, name in local.names : member => {
      ETCD_NAME                        = "etcd-${member}"
      ETCD_DATA_DIR                    = "/var/lib/etcd/data"
      ETCD_INITIAL_CLUSTER             = join(",", [for each, host in local.names : "etcd-${each}=https://${host}:2380"])
      ETCD_INITIAL_CLUSTER_STATE       = "new"
      ETCD_INITIAL_CLUSTER_TOKEN       = var.name
      ETCD_LISTEN_CLIENT_URLS          = "https://0.0.0.0:2379"
      ETCD_ADVERTISE_CLIENT_URLS       = "https://${name}:2379"
      ETCD_LISTEN_PEER_URLS            = "https://0.0.0.0:2380"
      ETCD_INITIAL_ADVERTISE_PEER_URLS = "https://${name}:2380"
      ETCD_CLIENT_CERT_AUTH            = "true"
      ETCD_TRUSTED_CA_FILE             = local.tls["ca"]
      ETCD_CERT_FILE                   = local.tls["member-cert"]
      ETCD_KEY_FILE                    = local.tls["member-key"]
      ETCD_PEER_CLIENT_CERT_AUTH       = "true"
      ETCD_PEER_TRUSTED_CA_FILE        = local.tls["ca"]
      ETCD_PEER_CERT_FILE              = local.tls["member-cert"]
      ETCD_PEER_KEY_FILE               = local.tls["member-key"]
      ETCD_AUTO_COMPACTION_MODE        = "periodic"
      ETCD_AUTO_COMPACTION_RETENTION   = "1h"
      ETCD_QUOTA_BACKEND_BYTES         = "8589934592"
    }
  }

  node_config = {
    for member, name in local.names : member => {
      member = "etcd-${member}"
      files  = { for parameter, path in local.tls : path => "${var.certificate_path}/${parameter}" }
      mount  = { path = "/var/lib/etcd", user = "etcd", volume = aws_ebs_volume.data[member].id }
      backup = {
        bucket = var.backups.bucket
        prefix = var.backups.prefix
        environment = {
          ETCDCTL_ENDPOINTS = "https://${name}:2379"
          ETCDCTL_CACERT    = local.tls["ca"]
          ETCDCTL_CERT      = local.tls["member-cert"]
          ETCDCTL_KEY       = local.tls["member-key"]
        }
      }
    }
  }

  # Each member begins at another minute.
  timer = {
    for member, index in local.members : member => <<-EOT
      [Unit]
      Description=Snapshot of etcd to the bucket, every ${var.backup_minutes} minutes

      [Timer]
      OnBootSec=${10 + floor(index * var.backup_minutes / length(local.members))}min
      OnUnitActiveSec=${var.backup_minutes}min

      [Install]
      WantedBy=timers.target
    EOT
  }

  cloud_config = {
    for member in keys(local.members) : member => "#cloud-config\n${yamlencode({
      # The package brings a unit of its own, without TLS, and would start it.
      bootcmd        = [["systemctl", "mask", "etcd.service"]]
      package_update = var.internet_egress
      packages       = var.internet_egress ? ["etcd-client", "etcd-server", "python3-boto3", "xfsprogs"] : []
      write_files = concat(
        [
          { path = "/opt/tierlog-node/node.py", permissions = "0755", content = file("${local.node}/node.py") },
          { path = "/etc/tierlog/node.json", permissions = "0644", content = jsonencode(local.node_config[member]) },
          { path = "/etc/tierlog/etcd.env", permissions = "0644", content = join("", [for name, value in local.environment[member] : "${name}=${value}\n"]) },
          { path = "/etc/systemd/system/tierlog-etcd-backup.timer", permissions = "0644", content = local.timer[member] },
        ],
        [
          for unit in local.units :
          { path = "/etc/systemd/system/${unit}", permissions = "0644", content = file("${local.node}/${unit}") }
        ],
      )
      runcmd = [
        ["systemctl", "daemon-reload"],
        ["systemctl", "enable", "--now", "tierlog-etcd-prepare.service", "tierlog-etcd.service", "tierlog-etcd-backup.timer"],
      ]
    })}"
  }
}
