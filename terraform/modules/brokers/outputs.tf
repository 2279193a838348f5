locals {
  url    = var.load_balancer ? "${var.insecure ? "http" : "https"}://${aws_lb.this[0].dns_name}:${var.http_port}" : ""
  server = var.insecure ? "--server ${local.url}" : "--profile ${var.name}"
  folder = "./${var.name}-secrets"
}

output "bootstrap_servers" {
  description = "What bootstrap.servers takes; empty without a load balancer."
  value       = var.load_balancer ? "${aws_lb.this[0].dns_name}:${var.kafka_port}" : ""
}

output "http_url" {
  description = "Address of the HTTP API; empty without a load balancer."
  value       = var.load_balancer ? local.url : ""
}

output "secrets_command" {
  description = "Makes the authority and the first user's password and puts them into SSM; run it once, before the brokers start. Empty with insecure."
  value       = var.insecure ? "" : "${abspath(path.module)}/secrets.sh ${join("", [for arn in slice(var.secrets_kms_key_arns, 0, min(1, length(var.secrets_kms_key_arns))) : "--key-id ${arn} "])}${local.folder} ${var.secrets_path}"
}

output "node_ids" {
  description = "Node ids of the brokers and the zone of each."
  value       = { for slot, where in local.slots : slot => data.aws_subnet.this[where.zone].availability_zone }
}

output "group_names" {
  description = "Autoscaling groups by node id."
  value       = { for slot, group in aws_autoscaling_group.broker : slot => group.name }
}

output "role_name" {
  description = "IAM role of the machines."
  value       = aws_iam_role.broker.name
}

output "machine_policy" {
  description = "What the machines may do beyond the bucket, as JSON."
  value       = local.document
}

output "security_group_id" {
  description = "Security group of the brokers."
  value       = aws_security_group.broker.id
}

output "commands" {
  description = "Ready command lines: write what clients need (first), look at the cluster, make a topic, and replace machines one after the other."
  value = merge(
    var.load_balancer ? {
      status  = "tierlog cluster status ${local.server}"
      topic   = "tierlog topic create orders ${local.server} --partitions 6 --config remote.storage.enable=true --config segment.ms=3600000"
      produce = "echo hello | tierlog produce orders ${local.server}"
    } : {},
    var.load_balancer && !var.insecure ? {
      clients = "${abspath(path.module)}/clients.sh ${local.folder} ${var.name} ${aws_lb.this[0].dns_name}:${var.kafka_port} ${local.url}"
      kafka   = "kcat -F ${local.folder}/librdkafka.properties -L"
    } : {},
    {
      for slot, group in aws_autoscaling_group.broker :
      "replace_${slot}" => "aws autoscaling start-instance-refresh --region ${local.region} --auto-scaling-group-name ${group.name} --preferences MinHealthyPercentage=0,MaxHealthyPercentage=100"
    },
  )
}
