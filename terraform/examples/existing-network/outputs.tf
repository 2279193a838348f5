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

output "secrets_command" {
  description = "Makes the brokers' authority and the first user's password; run it before the brokers start: they wait for these."
  value       = module.brokers.secrets_command
}

output "http_url" {
  description = "Address of the HTTP API."
  value       = module.brokers.http_url
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
