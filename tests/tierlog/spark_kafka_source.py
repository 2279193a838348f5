"""A program for `test_login_matrix.py`: reads a topic through Spark's Kafka source, once for each set of options."""

import json
import sys

from spark.session import session


def main() -> None:
    asked = json.load(sys.stdin)
    config = {
        "spark.master": "local[1]",
        "spark.jars": ",".join(asked["jars"]),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": asked["java"],
    }
    spark = session("kafka-source", config=config)
    found = {}
    for name, options in asked["reads"].items():
        try:
            rows = spark.read.format("kafka").options(**options).load().select("value").collect()
            found[name] = [bytes(row.value).decode() for row in rows]
        except Exception as error:
            found[name] = str(error)[:4000]
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
