output "bootstrap_servers" {
  description = "What bootstrap.servers takes."
  value       = module.brokers.bootstrap_servers
}

output "certificate_command" {
  description = "Makes etcd's certificates; the members wait for them."
  value       = module.etcd.certificate_command
}

output "reader_policy_arn" {
  description = "IAM policy for Spark and other readers of the bucket."
  value       = module.bucket.policy_arns["reader"]
}

output "commands" {
  description = "Ready command lines."
  value = {
    brokers    = module.brokers.commands
    etcd       = module.etcd.commands
    archive    = module.bucket.commands
    monitoring = module.monitoring.commands
  }
}
