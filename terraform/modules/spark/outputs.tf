output "application_id" {
  description = "Id of the EMR Serverless application."
  value       = aws_emrserverless_application.this.id
}

output "role_arn" {
  description = "Role of the jobs: it reads the archive and the code, and nothing else."
  value       = aws_iam_role.job.arn
}

output "environment_url" {
  description = "Where the packed Python environment has to be."
  value       = local.environment
}

output "commands" {
  description = "Ready command lines: pack the environment, put it in its place, and run each job."
  value = merge(
    {
      pack   = "docker run --rm -v \"$PWD:/out\" --entrypoint bash public.ecr.aws/amazonlinux/amazonlinux:2023 -c 'dnf install -y -q python3.11 python3.11-pip tar gzip && python3.11 -m venv /e && /e/bin/pip install -q venv-pack \"tierlog[spark]\" && /e/bin/venv-pack -f -p /e -o /out/environment.tar.gz'"
      upload = "aws s3 cp environment.tar.gz ${local.environment}"
    },
    {
      for name, arguments in local.jobs : name => join(" ", [
        "aws emr-serverless start-job-run --region ${data.aws_region.current.id} --name ${name}",
        "--application-id ${aws_emrserverless_application.this.id} --execution-role-arn ${aws_iam_role.job.arn}",
        "--job-driver '${jsonencode({ sparkSubmit = { entryPoint = "${local.code}/job.py", entryPointArguments = arguments, sparkSubmitParameters = local.spark_parameters } })}'",
      ])
    },
  )
}
