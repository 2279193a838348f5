# Alarms on what the brokers say of themselves, a topic that all alarms of the cluster go to, and a dashboard. Each broker
# sends its metrics every minute (terraform/node/node.py); with one dimension, the cluster, the worst broker is seen.

locals {
  gib = 1073741824

  alarms = {
    under-replicated = {
      metric = "UnderReplicatedPartitions", statistic = "Maximum", comparison = "GreaterThanThreshold", threshold = 0, minutes = 10
      help   = "Replicas are missing or behind. tierlog cluster status names them."
    }
    under-min-in-sync = {
      metric = "UnderMinInSyncPartitions", statistic = "Maximum", comparison = "GreaterThanThreshold", threshold = 0, minutes = 2
      help   = "Partitions refuse writes with acks=all: too few replicas are in sync. tierlog cluster status names them."
    }
    failed-log = {
      metric = "FailedLogs", statistic = "Maximum", comparison = "GreaterThanThreshold", threshold = 0, minutes = 1
      help   = "A log takes no writes, since its disk failed. Replace the broker's machine."
    }
    damaged-segment = {
      metric = "DamagedSegments", statistic = "Maximum", comparison = "GreaterThanThreshold", threshold = 0, minutes = 10
      help   = "A segment is damaged and was not replaced from another broker. tierlog archive status names it."
    }
    archive-stopped = {
      metric = "StoppedArchives", statistic = "Maximum", comparison = "GreaterThanThreshold", threshold = 0, minutes = 5
      help   = "An archive is stopped until somebody decides: docs/ARCHIVE_REPAIR.md."
    }
    archive-backlog = {
      metric = "ArchiveBacklogBytes", statistic = "Maximum", comparison = "GreaterThanThreshold", threshold = var.max_backlog_gib * local.gib, minutes = 15
      help   = "Much waits to be archived: the bucket is away, or slower than producers. tierlog archive status says why."
    }
    disk = {
      metric = "DiskFreeBytes", statistic = "Minimum", comparison = "LessThanThreshold", threshold = var.min_free_gib * local.gib, minutes = 5
      help   = "A broker's disk is nearly full: shorten local.retention.ms, or use larger disks."
    }
    slow = {
      metric = "LoopDelayMaxSeconds", statistic = "Maximum", comparison = "GreaterThanThreshold", threshold = 1, minutes = 10
      help   = "A broker is late with everything it does: it has too little processor for its load."
    }
  }
}

resource "aws_sns_topic" "alarms" {
  name              = "${var.name}-alarms"
  kms_master_key_id = var.kms_key_arn
  tags              = var.tags
}

resource "aws_sns_topic_policy" "alarms" {
  arn = aws_sns_topic.alarms.arn
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "AlarmsOfThisAccount"
        Effect    = "Allow"
        Principal = { Service = "cloudwatch.amazonaws.com" }
        Action    = "SNS:Publish"
        Resource  = aws_sns_topic.alarms.arn
        Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.current.account_id } }
      },
      {
        Sid       = "OnlyByTls"
        Effect    = "Deny"
        Principal = "*"
        Action    = "SNS:Publish"
        Resource  = aws_sns_topic.alarms.arn
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
    ]
  })
}

data "aws_caller_identity" "current" {}

data "aws_region" "current" {}

resource "aws_sns_topic_subscription" "email" {
  for_each = var.emails

  topic_arn = aws_sns_topic.alarms.arn
  protocol  = "email"
  endpoint  = each.value
}

resource "aws_cloudwatch_metric_alarm" "service" {
  for_each = local.alarms

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.help
  namespace           = var.metric_namespace
  metric_name         = each.value.metric
  dimensions          = { Cluster = var.name }
  statistic           = each.value.statistic
  comparison_operator = each.value.comparison
  threshold           = each.value.threshold
  period              = 60
  evaluation_periods  = each.value.minutes
  # No broker has sent anything: that is an alarm too.
  treat_missing_data = "breaching"
  alarm_actions      = [aws_sns_topic.alarms.arn]
  ok_actions         = [aws_sns_topic.alarms.arn]
  tags               = var.tags
}

resource "aws_cloudwatch_dashboard" "this" {
  dashboard_name = var.name
  dashboard_body = jsonencode({
    widgets = [
      for index, name in keys(local.alarms) : {
        type   = "metric"
        x      = 12 * (index % 2)
        y      = 6 * floor(index / 2)
        width  = 12
        height = 6
        properties = {
          title       = name
          region      = data.aws_region.current.id
          stat        = local.alarms[name].statistic
          period      = 60
          view        = "timeSeries"
          metrics     = [[var.metric_namespace, local.alarms[name].metric, "Cluster", var.name]]
          annotations = { horizontal = [{ label = "alarm", value = local.alarms[name].threshold }] }
        }
      }
    ]
  })
}
