# What a machine is told at its first start. terraform/node holds the programs and units; tierlog.service is that of
# deploy/systemd, with what differs here beside it.

locals {
  node = "${path.module}/../../node"
  units = [
    "tierlog-prepare.service", "tierlog.service", "tierlog-drain.service", "tierlog-metrics.service", "tierlog-metrics.timer",
    "tierlog-certificate.service", "tierlog-certificate.timer",
  ]

  run        = "/run/tierlog"
  etcd_files = { for name in ["ca", "cert", "key"] : name => "${local.run}/etcd-${name}.pem" }
  secrets    = var.insecure ? {} : { for name in ["ca", "ca-key", "admin-password"] : name => "${var.secrets_path}/${name}" }

  # docs/SECURING.md explains each. The names of files are those that node.py gives.
  closed = var.insecure ? {} : merge(
    {
      "tls.certificate"           = "${local.run}/broker.pem"
      "tls.key"                   = "${local.run}/broker.key"
      "tls.ca"                    = "${local.run}/ca.pem"
      "tls.peers"                 = "CN=broker"
      "login.first_user"          = "admin"
      "login.first_password"      = "file:${local.run}/admin.password"
      "authorization.enabled"     = "true"
      "authorization.super_users" = "admin"
      "audit.enabled"             = "true"
      "listener.kafka.protocol"   = "sasl_tls"
      "listener.kafka.takes"      = "clients"
      "listener.http.protocol"    = "https"
      "listener.http.login"       = "required"
      "listener.http.takes"       = "clients"
    },
    merge([
      for name, protocol in { inside          = "tls", inside_http = "https" } : {
        "listener.${name}.protocol"           = protocol
        "listener.${name}.bind"               = "0.0.0.0:${local.inside_ports[name]}"
        "listener.${name}.takes"              = "peers"
        "listener.${name}.client_certificate" = "required"
      }
    ]...),
  )

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
    local.closed,
    var.settings,
  )

  # topic.min.insync.replicas is TIERLOG_TOPIC__MIN_INSYNC_REPLICAS; the name of a listener is a part of its own.
  names = {
    for key, parts in { for key in keys(local.settings) : key => split(".", key) } :
    key => parts[0] == "listener" ? parts : [parts[0], join("_", slice(parts, 1, length(parts)))]
  }
  environment = join("", [
    for key, value in local.settings : "TIERLOG_${upper(join("__", local.names[key]))}=\"${value}\"\n"
  ])

  node_config = {
    cluster        = var.name
    package_source = var.package_source
    unit           = "tierlog.service"
    environment    = "${local.run}/node.env"
    lifecycle_hook = local.hook
    namespace      = var.metric_namespace
    metrics_url    = var.insecure ? "http://127.0.0.1:${var.http_port}/metrics" : "https://127.0.0.1:${local.inside_ports["inside_http"]}/metrics"
    secrets        = var.secrets
    files = merge(
      { for name, path in local.etcd_files : path => var.etcd_client.parameters[name] if var.etcd_client != null },
      { for path, name in { "${local.run}/admin.password" = "admin-password" } : path => local.secrets[name] if !var.insecure },
    )
    certificate = var.insecure ? null : {
      folder = local.run
      ca     = local.secrets["ca"]
      ca_key = local.secrets["ca-key"]
      hosts  = aws_lb.this[*].dns_name
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
      ["systemctl", "enable", "--now", "tierlog-prepare.service", "tierlog.service", "tierlog-drain.service", "tierlog-metrics.timer", "tierlog-certificate.timer"],
    ]
  })}"
}
