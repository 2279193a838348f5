output "role_arn" {
  description = "Role of the jobs."
  value       = module.spark.role_arn
}

output "commands" {
  description = "Ready command lines."
  value = {
    spark   = module.spark.commands
    archive = module.bucket.commands
  }
}
