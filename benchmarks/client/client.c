/* A load generator on librdkafka, without an interpreter between it and the broker.
 *
 *   client produce BOOTSTRAP TOPIC PARTITIONS RECORDS_FILE RECORD_BYTES SECONDS COUNT [key=value …]
 *                  until SECONDS or COUNT is reached; 0 means no limit
 *   client consume BOOTSTRAP TOPIC PARTITIONS COUNT                             [key=value …]
 *   client latency BOOTSTRAP TOPIC PARTITIONS RECORD_BYTES RATE SECONDS        [key=value …]
 *   client transactions BOOTSTRAP TOPIC PARTITIONS RECORD_BYTES PER_TRANSACTION SECONDS [key=value …]
 *                  one transaction after the other; the latency is that of the commit, records on their way included
 *   client connect BOOTSTRAP COUNT                                             [key=value …]
 *                  one connection after the other, each until metadata has been read through it
 *
 * key=value are librdkafka settings. One line of JSON goes to standard output. Built against the librdkafka that
 * comes with confluent-kafka. That has no header files, so the used part of its stable interface is declared here.
 */

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;
typedef struct {
    int err;
    rd_kafka_topic_t *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *opaque;
} rd_kafka_message_t;
typedef struct {
    char *topic;
    int32_t partition;
    int64_t offset;
} rd_kafka_topic_partition_head_t;

enum { PRODUCER = 0, CONSUMER = 1, CONF_OK = 0, QUEUE_FULL = -184, PARTITION_EOF = -191, OFFSET_BEGINNING = -2, OFFSET_END = -1 };
#define UNASSIGNED ((int32_t)-1)

extern rd_kafka_conf_t *rd_kafka_conf_new(void);
extern int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
extern void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
extern rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
extern rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, void *);
extern int rd_kafka_produce(rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
extern int rd_kafka_last_error(void);
extern int rd_kafka_poll(rd_kafka_t *, int);
extern int rd_kafka_flush(rd_kafka_t *, int);
extern int rd_kafka_outq_len(rd_kafka_t *);
extern const char *rd_kafka_err2str(int);
extern int rd_kafka_metadata(rd_kafka_t *, int, rd_kafka_topic_t *, const void **, int);
extern void rd_kafka_metadata_destroy(const void *);
extern void rd_kafka_destroy(rd_kafka_t *);
extern const char *rd_kafka_version_str(void);
extern rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int);
extern rd_kafka_topic_partition_head_t *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *, const char *, int32_t);
extern int rd_kafka_topic_partition_list_set_offset(rd_kafka_topic_partition_list_t *, const char *, int32_t, int64_t);
extern int rd_kafka_assign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
extern rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *);
extern ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
extern void rd_kafka_message_destroy(rd_kafka_message_t *);
extern int rd_kafka_poll_set_consumer(rd_kafka_t *);

typedef struct rd_kafka_error_s rd_kafka_error_t;
extern rd_kafka_error_t *rd_kafka_init_transactions(rd_kafka_t *, int);
extern rd_kafka_error_t *rd_kafka_begin_transaction(rd_kafka_t *);
extern rd_kafka_error_t *rd_kafka_commit_transaction(rd_kafka_t *, int);
extern const char *rd_kafka_error_string(const rd_kafka_error_t *);

#define BATCH 2000
#define GIVE_UP_S 60

static int64_t delivered, failed, first_ns, last_ns;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static double cpu_seconds(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_utime.tv_sec + use.ru_stime.tv_sec + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) {
        if (!failed++) fprintf(stderr, "delivery failed: %s\n", rd_kafka_err2str(message->err));
    } else {
        delivered++;
    }
    last_ns = now_ns();
}

static rd_kafka_t *connect_to(int type, const char *bootstrap, char **settings, int count, int with_reports) {
    char error[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, error, sizeof error) != CONF_OK) die("setting", error);
    rd_kafka_conf_set(conf, "log_level", "2", error, sizeof error);
    if (type == CONSUMER) {
        rd_kafka_conf_set(conf, "group.id", "benchmark", error, sizeof error);
        rd_kafka_conf_set(conf, "enable.auto.commit", "false", error, sizeof error);
    }
    for (int i = 0; i < count; i++) {
        char *value = strchr(settings[i], '=');
        if (!value) die("not key=value", settings[i]);
        *value = 0;
        int mine = strncmp(settings[i], type == PRODUCER ? "consumer:" : "producer:", 9) != 0;
        char *key = strchr(settings[i], ':') ? strchr(settings[i], ':') + 1 : settings[i];
        if (mine && rd_kafka_conf_set(conf, key, value + 1, error, sizeof error) != CONF_OK) die(key, error);
        *value = '=';
    }
    if (with_reports) rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *client = rd_kafka_new(type, conf, error, sizeof error);
    if (!client) die("client", error);
    return client;
}

static rd_kafka_queue_t *assign_all(rd_kafka_t *client, const char *topic, int partitions, int64_t offset) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(partitions);
    for (int p = 0; p < partitions; p++) {
        rd_kafka_topic_partition_list_add(list, topic, p);
        rd_kafka_topic_partition_list_set_offset(list, topic, p, offset);
    }
    rd_kafka_poll_set_consumer(client);
    int error = rd_kafka_assign(client, list);
    if (error) die("assign", rd_kafka_err2str(error));
    return rd_kafka_queue_get_consumer(client);
}

static void produce_for(int argc, char **argv) {
    const char *topic = argv[3];
    int partitions = atoi(argv[4]);
    size_t size = strtoul(argv[6], NULL, 10);
    int64_t span_ns = (int64_t)(atof(argv[7]) * 1e9), count = strtoll(argv[8], NULL, 10);
    FILE *file = fopen(argv[5], "rb");
    if (!file) die("records", argv[5]);
    fseek(file, 0, SEEK_END);
    size_t total = (size_t)ftell(file) / size * size, position = 0;
    rewind(file);
    char *records = malloc(total);
    if (fread(records, 1, total, file) != total) die("records", "short file");
    rd_kafka_t *client = connect_to(PRODUCER, argv[2], argv + 9, argc - 9, 1);
    rd_kafka_topic_t *handle = rd_kafka_topic_new(client, topic, NULL);

    /* Send one record first, so that connections and metadata are there when the clock starts. */
    if (rd_kafka_produce(handle, 0, 0, records, size, NULL, 0, NULL)) die("first record", rd_kafka_err2str(rd_kafka_last_error()));
    rd_kafka_flush(client, GIVE_UP_S * 1000);
    if (delivered != 1) die("first record", "not delivered");
    delivered = 0;

    /* Fill one partition for a while before the next one, as sticky partitioners do. */
    int64_t sent = 0, sticky = (int64_t)(1 << 20) / (int64_t)size + 1;
    double cpu = cpu_seconds();
    first_ns = now_ns();
    while (!count || sent < count) {
        if ((sent & 255) == 0) {
            rd_kafka_poll(client, 0);
            if (span_ns && now_ns() - first_ns >= span_ns) break;
        }
        int32_t partition = (int32_t)(sent / sticky % partitions);
        while (rd_kafka_produce(handle, partition, 0, records + position, size, NULL, 0, NULL)) {
            if (rd_kafka_last_error() != QUEUE_FULL) die("produce", rd_kafka_err2str(rd_kafka_last_error()));
            rd_kafka_poll(client, 5);
        }
        sent++;
        position = position + size == total ? 0 : position + size;
    }
    rd_kafka_flush(client, GIVE_UP_S * 1000);
    printf("{\"records\": %" PRId64 ", \"bytes\": %" PRId64 ", \"seconds\": %.6f, \"failed\": %" PRId64 ", \"unanswered\": %d, \"client_cpu_seconds\": %.3f}\n",
           delivered, delivered * (int64_t)size, (last_ns - first_ns) / 1e9, failed, rd_kafka_outq_len(client), cpu_seconds() - cpu);
}

static void consume_all(int argc, char **argv) {
    int64_t wanted = strtoll(argv[5], NULL, 10), count = 0, bytes = 0, started = now_ns();
    rd_kafka_t *client = connect_to(CONSUMER, argv[2], argv + 6, argc - 6, 0);
    rd_kafka_queue_t *queue = assign_all(client, argv[3], atoi(argv[4]), OFFSET_BEGINNING);
    rd_kafka_message_t *messages[BATCH];
    double cpu = cpu_seconds();
    while (count < wanted && now_ns() - started < GIVE_UP_S * INT64_C(1000000000)) {
        ssize_t got = rd_kafka_consume_batch_queue(queue, 1000, messages, BATCH);
        if (got > 0 && !first_ns) first_ns = now_ns();
        for (ssize_t i = 0; i < got; i++) {
            if (messages[i]->err && messages[i]->err != PARTITION_EOF) die("consume", rd_kafka_err2str(messages[i]->err));
            if (!messages[i]->err) count++, bytes += (int64_t)messages[i]->len;
            rd_kafka_message_destroy(messages[i]);
        }
    }
    last_ns = now_ns();
    printf("{\"records\": %" PRId64 ", \"bytes\": %" PRId64 ", \"seconds\": %.6f, \"first_record_seconds\": %.6f, \"client_cpu_seconds\": %.3f}\n",
           count, bytes, (last_ns - first_ns) / 1e9, (first_ns - started) / 1e9, cpu_seconds() - cpu);
    fflush(stdout);
    _Exit(count < wanted);
}

/* Latency: a thread consumes what the main thread produces at a fixed rate; each record holds its send time. */

static int64_t *latencies_ns;
static int64_t expected, received;
static int consumer_ready;
static rd_kafka_queue_t *latency_queue;

static void *consume_latencies(void *unused) {
    (void)unused;
    rd_kafka_message_t *messages[BATCH];
    while (__atomic_load_n(&received, __ATOMIC_RELAXED) < expected) {
        ssize_t got = rd_kafka_consume_batch_queue(latency_queue, 100, messages, 1);
        int64_t now = now_ns();
        for (ssize_t i = 0; i < got; i++) {
            int64_t sent;
            if (messages[i]->err == PARTITION_EOF) __atomic_fetch_add(&consumer_ready, 1, __ATOMIC_SEQ_CST);
            else if (messages[i]->err) die("consume", rd_kafka_err2str(messages[i]->err));
            else {
                memcpy(&sent, messages[i]->payload, sizeof sent);
                latencies_ns[__atomic_fetch_add(&received, 1, __ATOMIC_RELAXED)] = now - sent;
            }
            rd_kafka_message_destroy(messages[i]);
        }
    }
    return NULL;
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void measure_latency(int argc, char **argv) {
    const char *topic = argv[3];
    int partitions = atoi(argv[4]);
    size_t size = strtoul(argv[5], NULL, 10);
    double rate = atof(argv[6]);
    expected = (int64_t)(rate * atof(argv[7]));
    latencies_ns = calloc((size_t)expected, sizeof *latencies_ns);
    char *record = malloc(size);
    memset(record, 'x', size);
    rd_kafka_t *consumer = connect_to(CONSUMER, argv[2], argv + 8, argc - 8, 0);
    latency_queue = assign_all(consumer, topic, partitions, OFFSET_END);
    rd_kafka_t *producer = connect_to(PRODUCER, argv[2], argv + 8, argc - 8, 1);
    rd_kafka_topic_t *handle = rd_kafka_topic_new(producer, topic, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, consume_latencies, NULL);
    for (int waited = 0; __atomic_load_n(&consumer_ready, __ATOMIC_SEQ_CST) < partitions; waited++) {
        if (waited > 10000) die("latency", "the consumer did not reach the end of every partition");
        rd_kafka_poll(producer, 1);
    }
    first_ns = now_ns();
    for (int64_t n = 0; n < expected; n++) {
        int64_t due = first_ns + (int64_t)(n * 1e9 / rate), now;
        while ((now = now_ns()) < due) {
            struct timespec pause = {0, due - now > 200000 ? 100000 : 10000};
            nanosleep(&pause, NULL);
            rd_kafka_poll(producer, 0);
        }
        memcpy(record, &due, sizeof due); /* the time when it should have left, so that a stalled producer counts too */
        while (rd_kafka_produce(handle, (int32_t)(n % partitions), 2, record, size, NULL, 0, NULL)) rd_kafka_poll(producer, 1);
    }
    rd_kafka_flush(producer, GIVE_UP_S * 1000);
    for (int waited = 0; __atomic_load_n(&received, __ATOMIC_RELAXED) < expected; waited++) {
        if (waited > GIVE_UP_S * 100) die("latency", "records were sent and never read");
        struct timespec pause = {0, 10000000};
        nanosleep(&pause, NULL);
    }
    qsort(latencies_ns, (size_t)expected, sizeof *latencies_ns, ascending);
#define AT(share) (latencies_ns[(int64_t)((double)(expected - 1) * (share))] / 1e6)
    printf("{\"records\": %" PRId64 ", \"failed\": %" PRId64 ", \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"p999_ms\": %.3f, \"max_ms\": %.3f}\n",
           expected, failed, AT(0.5), AT(0.99), AT(0.999), AT(1.0));
}

static void done(const char *what, rd_kafka_error_t *error) {
    if (error) die(what, rd_kafka_error_string(error));
}

static void measure_transactions(int argc, char **argv) {
    const char *topic = argv[3];
    int partitions = atoi(argv[4]), most = 1 << 20;
    size_t size = strtoul(argv[5], NULL, 10);
    int64_t each = strtoll(argv[6], NULL, 10), span_ns = (int64_t)(atof(argv[7]) * 1e9), count = 0;
    latencies_ns = calloc((size_t)most, sizeof *latencies_ns);
    char *record = malloc(size);
    memset(record, 'x', size);
    rd_kafka_t *client = connect_to(PRODUCER, argv[2], argv + 8, argc - 8, 1);
    rd_kafka_topic_t *handle = rd_kafka_topic_new(client, topic, NULL);
    done("init", rd_kafka_init_transactions(client, GIVE_UP_S * 1000));
    double cpu = 0;
    /* The first transaction finds the leaders and the coordinator; the clock starts after it. */
    for (int64_t n = -1; n < most && (n < 1 || now_ns() - first_ns < span_ns); n++) {
        done("begin", rd_kafka_begin_transaction(client));
        for (int64_t sent = 0; sent < each; sent++) {
            while (rd_kafka_produce(handle, (int32_t)(sent % partitions), 2, record, size, NULL, 0, NULL)) {
                if (rd_kafka_last_error() != QUEUE_FULL) die("produce", rd_kafka_err2str(rd_kafka_last_error()));
                rd_kafka_poll(client, 5);
            }
        }
        int64_t asked = now_ns();
        done("commit", rd_kafka_commit_transaction(client, GIVE_UP_S * 1000));
        if (n < 0) first_ns = now_ns(), delivered = 0, cpu = cpu_seconds();
        else latencies_ns[count++] = now_ns() - asked;
    }
    last_ns = now_ns();
    expected = count;
    qsort(latencies_ns, (size_t)count, sizeof *latencies_ns, ascending);
    printf("{\"records\": %" PRId64 ", \"bytes\": %" PRId64 ", \"seconds\": %.6f, \"failed\": %" PRId64 ", \"client_cpu_seconds\": %.3f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"p999_ms\": %.3f, \"max_ms\": %.3f}\n",
           delivered, delivered * (int64_t)size, (last_ns - first_ns) / 1e9, failed, cpu_seconds() - cpu, AT(0.5), AT(0.99), AT(0.999), AT(1.0));
}

static void connect_often(int argc, char **argv) {
    int64_t count = strtoll(argv[3], NULL, 10);
    first_ns = now_ns();
    for (int64_t n = 0; n < count; n++) {
        const void *metadata;
        rd_kafka_t *client = connect_to(PRODUCER, argv[2], argv + 4, argc - 4, 0);
        int error = rd_kafka_metadata(client, 0, NULL, &metadata, GIVE_UP_S * 1000);
        if (error) die("connect", rd_kafka_err2str(error));
        rd_kafka_metadata_destroy(metadata);
        rd_kafka_destroy(client);
    }
    printf("{\"connections\": %" PRId64 ", \"seconds\": %.6f}\n", count, (now_ns() - first_ns) / 1e9);
}

int main(int argc, char **argv) {
    if (argc >= 9 && !strcmp(argv[1], "produce")) produce_for(argc, argv);
    else if (argc >= 6 && !strcmp(argv[1], "consume")) consume_all(argc, argv);
    else if (argc >= 8 && !strcmp(argv[1], "latency")) measure_latency(argc, argv);
    else if (argc >= 8 && !strcmp(argv[1], "transactions")) measure_transactions(argc, argv);
    else if (argc >= 4 && !strcmp(argv[1], "connect")) connect_often(argc, argv);
    else if (argc == 2 && !strcmp(argv[1], "version")) printf("%s\n", rd_kafka_version_str());
    else die(argv[0], "produce | consume | latency | transactions | connect | version, see the top of client.c");
    fflush(stdout);
    _Exit(0);
}
