# What a machine is told at its first start. terraform/node holds the programs and units; tierlog.service is that of
# deploy/systemd, with what differs here beside it.

locals {
  node = "${path.module}/../../node"
  units = [
    "tierlog-prepare.service", "tierlog.service", "tierlog-drain.service", "tierlog-metrics.service", "tierlog-metrics.timer",
  ]

  etcd_files = { for name in ["ca", "cert", "key"] : name => "/run/tierlog/etcd-${name}.pem" }

  settings = merge(
    {
      "kafka.host"        = "0.0.0.0"
      "kafka.port"        = tostring(var.kafka_port)
      "http.host"         = "0.0.0.0"
      "http.port"         = tostring(var.http_port)
      "log.data_dir"      = "/var/lib/tierlog/data"
      "store.bucket"      = var.bucket_url
      "store.s3_region"   = local.region
      "cluster.metadata"  = var.metadata
      "broker.log_format" = "logfmt"
    },
    var.load_balancer ? { "http.allowed_hosts" = aws_lb.this[0].dns_name } : {},
    var.etcd_client == null ? {} : { for name, path in local.etcd_files : "etcd.${name}" => path },
    var.settings,
  )

  # topic.min.insync.replicas is TIERLOG_TOPIC__MIN_INSYNC_REPLICAS.
  environment = join("", [
    for key, value in local.settings :
    "TIERLOG_${upper(split(".", key)[0])}__${upper(join("_", slice(split(".", key), 1, length(split(".", key)))))}=\"${value}\"\n"
  ])

  node_config = {
    cluster        = var.name
    package_source = var.package_source
    unit           = "tierlog.service"
    environment    = "/run/tierlog/node.env"
    lifecycle_hook = local.hook
    namespace      = var.metric_namespace
    metrics_url    = "http://127.0.0.1:${var.http_port}/metrics"
    secrets        = var.secrets
    files = {
      for name, path in local.etcd_files : path => var.etcd_client.parameters[name] if var.etcd_client != null
    }
    mount = {
      path    = "/var/lib/tierlog"
      user    = "tierlog"
      attach  = true
      volumes = { for slot, volume in aws_ebs_volume.data : slot => volume.id }
    }
  }

  cloud_config = "#cloud-config\n${yamlencode({
    package_update = var.internet_egress
    packages       = var.internet_egress ? ["mdadm", "python3-boto3", "python3-venv", "xfsprogs"] : []
    write_files = concat(
      [
        { path = "/opt/tierlog-node/node.py", permissions = "0755", content = file("${local.node}/node.py") },
        { path = "/etc/tierlog/node.json", permissions = "0644", content = jsonencode(local.node_config) },
        { path = "/etc/tierlog/tierlog.env", permissions = "0644", content = local.environment },
      ],
      [
        for unit in local.units :
        { path = "/etc/systemd/system/${unit}", permissions = "0644", content = file("${local.node}/${unit}") }
      ],
      [{
        path        = "/etc/systemd/system/tierlog.service.d/terraform.conf"
        permissions = "0644"
        content     = file("${local.node}/tierlog.service.conf")
      }],
    )
    runcmd = [
      ["useradd", "--system", "--user-group", "--home-dir", "/var/lib/tierlog", "--shell", "/usr/sbin/nologin", "tierlog"],
      ["/opt/tierlog-node/node.py", "install"],
      ["systemctl", "daemon-reload"],
      ["systemctl", "enable", "--now", "tierlog-prepare.service", "tierlog.service", "tierlog-drain.service", "tierlog-metrics.timer"],
    ]
  })}"
}
