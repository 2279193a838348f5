output "bootstrap_servers" {
  description = "What bootstrap.servers takes; empty without a load balancer."
  value       = var.load_balancer ? "${aws_lb.this[0].dns_name}:${var.kafka_port}" : ""
}

output "http_url" {
  description = "Address of the HTTP API; empty without a load balancer."
  value       = var.load_balancer ? "http://${aws_lb.this[0].dns_name}:${var.http_port}" : ""
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
  description = "Ready command lines: look at the cluster, make a topic, and replace machines one after the other."
  value = merge(
    var.load_balancer ? {
      status  = "tierlog cluster status --server http://${aws_lb.this[0].dns_name}:${var.http_port}"
      topic   = "tierlog topic create orders --server http://${aws_lb.this[0].dns_name}:${var.http_port} --partitions 6 --config remote.storage.enable=true --config segment.ms=3600000"
      produce = "echo hello | tierlog produce orders --server http://${aws_lb.this[0].dns_name}:${var.http_port}"
    } : {},
    {
      for slot, group in aws_autoscaling_group.broker :
      "replace_${slot}" => "aws autoscaling start-instance-refresh --region ${local.region} --auto-scaling-group-name ${group.name} --preferences MinHealthyPercentage=0,MaxHealthyPercentage=100"
    },
  )
}
