output "bootstrap_servers" {
  description = "What bootstrap.servers takes."
  value       = module.brokers.bootstrap_servers
}

output "commands" {
  description = "Ready command lines."
  value = {
    brokers    = module.brokers.commands
    archive    = module.bucket.commands
    monitoring = module.monitoring.commands
  }
}
