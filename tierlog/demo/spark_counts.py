"""`python -m tierlog.demo.spark_counts BUCKET TOPIC`: records per hour of an archived topic, as JSON.

It is a separate process because Spark writes much to standard error when it starts.
"""

import json
import sys

from spark.session import own_session
from spark.source import tierlog_read


def main(bucket: str, topic: str) -> None:
    config = {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    with own_session("tierlog demo", config=config) as spark:
        tierlog_read(spark, bucket, topic).createOrReplaceTempView("archived")
        hours = spark.sql(
            "select date_format(timestamp, 'yyyy-MM-dd HH:00') as hour, count(*) as records "
            "from archived group by 1 order by 1"
        )
        print(json.dumps([[row["hour"], row["records"]] for row in hours.collect()]))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
