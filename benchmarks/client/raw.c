/* A load generator without a client library: requests are encoded once, and of answers no more is read than needed.
 * It costs so little CPU that the broker is the limit, and it holds thousands of connections in one thread.
 *
 *   raw fetch   HOST PORT TOPIC PARTITIONS READERS BYTES
 *               each of READERS connections reads from the beginning, BYTES of batches in all PARTITIONS together
 *   raw produce HOST PORT TOPIC PARTITIONS CONNECTIONS OPEN BATCH_FILE SECONDS
 *               each connection sends the batch in the file again and again, with OPEN requests on their way (acks=1)
 *
 * One line of JSON goes to standard output. "bytes" are those of batches.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PRODUCE = 0, FETCH = 1, PRODUCE_VERSION = 7, FETCH_VERSION = 4, HEAD = 61, EVENTS = 256 };
enum { ANSWER_BYTES = 50 << 20, PARTITION_BYTES = 1 << 20, GIVE_UP_S = 60, MOST_OPEN = 64 };

static void die(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void check(const char *what, int64_t code) {
    if (code) fprintf(stderr, "%s: the broker answered with error %" PRId64 "\n", what, code), exit(1);
}

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

/* Big-endian numbers. */

static uint8_t *put(uint8_t *at, int64_t value, int width) {
    for (int i = width - 1; i >= 0; i--, value >>= 8) at[i] = (uint8_t)value;
    return at + width;
}

static uint8_t *put_text(uint8_t *at, const char *text) {
    size_t length = strlen(text);
    at = put(at, (int64_t)length, 2);
    memcpy(at, text, length);
    return at + length;
}

static int64_t get(const uint8_t *at, int width) {
    uint64_t value = 0;
    for (int i = 0; i < width; i++) value = value << 8 | at[i];
    return (int64_t)(value << (64 - 8 * width)) >> (64 - 8 * width);
}

static uint8_t *put_header(uint8_t *at, int api, int version) {
    return put_text(put(put(put(at + 4, api, 2), version, 2), 0, 4), "raw");
}

typedef struct {
    int fd, partitions;
    uint8_t *request, *answer;
    size_t request_bytes, unsent, answer_bytes, have;
    int64_t *offsets, bytes, records, asked_ns[MOST_OPEN];
    uint64_t asked, answered;
} Connection;

static int poller;
static const char *topic;

static void watch(Connection *c, int writing) {
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event)) die("epoll", strerror(errno));
}

static void connect_to(Connection *c, const char *host, const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    int yes = 1;
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) die("not an IPv4 address", host);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address)) die("connect", strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event)) die("epoll", strerror(errno));
}

static void send_rest(Connection *c) {
    ssize_t sent = send(c->fd, c->request + c->request_bytes - c->unsent, c->unsent, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) die("send", strerror(errno));
    if (sent > 0) c->unsent -= (size_t)sent;
    if (c->unsent) watch(c, 1);
}

static void ask(Connection *c) {
    c->asked_ns[c->asked++ % MOST_OPEN] = now_ns();
    c->unsent = c->request_bytes;
    send_rest(c);
}

/* Returns a whole answer, without its length, or NULL if it is not there yet. */
static uint8_t *receive(Connection *c) {
    for (;;) {
        size_t wanted = c->have < 4 ? 4 : 4 + (size_t)get(c->answer, 4);
        if (c->have >= 4 && c->have == wanted) {
            c->have = 0;
            return c->answer + 4;
        }
        if (wanted > c->answer_bytes) {
            c->answer_bytes = wanted;
            c->answer = realloc(c->answer, wanted);
            if (!c->answer) die("memory", "none");
        }
        ssize_t got = recv(c->fd, c->answer + c->have, wanted - c->have, 0);
        if (got == 0) die("connection", "the broker closed it");
        if (got < 0 && errno == EAGAIN) return NULL;
        if (got < 0) die("receive", strerror(errno));
        c->have += (size_t)got;
    }
}

static Connection *next_ready(int64_t until_ns, uint32_t *events) {
    static struct epoll_event ready[EVENTS];
    static int count, at;
    if (at == count) {
        int64_t left_ms = (until_ns - now_ns()) / 1000000;
        at = 0;
        count = epoll_wait(poller, ready, EVENTS, left_ms > 0 ? (int)left_ms : 0);
        if (count < 0) die("epoll", strerror(errno));
        if (count == 0) return NULL;
    }
    *events = ready[at].events;
    return ready[at++].data.ptr;
}

/* Fetch */

static void ask_for_more(Connection *c) {
    uint8_t *at = put_header(c->request, FETCH, FETCH_VERSION);
    at = put(put(put(put(put(at, -1, 4), 500, 4), 1, 4), ANSWER_BYTES, 4), 0, 1);
    at = put(put_text(put(at, 1, 4), topic), c->partitions, 4);
    for (int p = 0; p < c->partitions; p++) at = put(put(put(at, p, 4), c->offsets[p], 8), PARTITION_BYTES, 4);
    c->request_bytes = (size_t)(at - c->request);
    put(c->request, (int64_t)c->request_bytes - 4, 4);
    ask(c);
}

/* Walks the heads of the batches, to know where to read on. The last one may be cut off. */
static void take_batches(Connection *c, int partition, const uint8_t *at, const uint8_t *end) {
    while (end - at >= HEAD) {
        int64_t size = get(at + 8, 4) + 12;
        if (size > end - at) break;
        c->offsets[partition] = get(at, 8) + get(at + 23, 4) + 1;
        c->bytes += size;
        c->records += get(at + 57, 4);
        at += size;
    }
}

static void take_answer(Connection *c, const uint8_t *at) {
    at += 4 + 4 + 4;
    at += 2 + get(at, 2);
    int count = (int)get(at, 4);
    at += 4;
    for (int i = 0; i < count; i++) {
        int partition = (int)get(at, 4);
        check("fetch", get(at + 4, 2));
        int64_t aborted = get(at + 22, 4);
        at += 26 + (aborted > 0 ? 16 * aborted : 0);
        int64_t size = get(at, 4);
        at += 4;
        take_batches(c, partition, at, at + size);
        at += size > 0 ? size : 0;
    }
}

static void fetch(char **argv) {
    int readers = atoi(argv[6]), left = readers, partitions = atoi(argv[5]);
    int64_t wanted = strtoll(argv[7], NULL, 10), began = now_ns(), bytes = 0, records = 0;
    uint32_t events;
    Connection *all = calloc((size_t)readers, sizeof *all);
    for (Connection *c = all; c < all + readers; c++) {
        connect_to(c, argv[2], argv[3]);
        c->partitions = partitions;
        c->offsets = calloc((size_t)partitions, sizeof *c->offsets);
        c->request = malloc(256 + strlen(topic) + 16 * (size_t)partitions);
    }
    double cpu = cpu_seconds();
    began = now_ns();
    for (Connection *c = all; c < all + readers; c++) ask_for_more(c);
    while (left) {
        Connection *c = next_ready(began + GIVE_UP_S * INT64_C(1000000000), &events);
        if (!c) die("fetch", "not all was read in time");
        uint8_t *answer = receive(c);
        if (!answer) continue;
        take_answer(c, answer);
        if (c->bytes < wanted) ask_for_more(c);
        else left--, bytes += c->bytes, records += c->records;
    }
    printf("{\"records\": %" PRId64 ", \"bytes\": %" PRId64 ", \"seconds\": %.6f, \"client_cpu_seconds\": %.3f}\n",
           records, bytes, (now_ns() - began) / 1e9, cpu_seconds() - cpu);
}

/* Produce */

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static uint8_t *read_whole(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) die("batch", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *content = malloc(*size);
    if (fread(content, 1, *size, file) != *size) die("batch", "short file");
    return content;
}

static void produce(char **argv) {
    int partitions = atoi(argv[5]), count = atoi(argv[6]), open = atoi(argv[7]), left;
    int64_t span_ns = (int64_t)(atof(argv[9]) * 1e9), most = 1 << 22, done = 0;
    uint32_t events;
    size_t size;
    uint8_t *batch = read_whole(argv[8], &size);
    if (open > MOST_OPEN) die("open", "too many");
    int64_t *latencies_ns = calloc((size_t)most, sizeof *latencies_ns);
    Connection *all = calloc((size_t)count, sizeof *all);
    for (int i = 0; i < count; i++) {
        Connection *c = all + i;
        connect_to(c, argv[2], argv[3]);
        c->request = malloc(256 + strlen(topic) + size);
        uint8_t *at = put_header(c->request, PRODUCE, PRODUCE_VERSION);
        at = put(put(put(at, -1, 2), 1, 2), 30000, 4);
        at = put(put(put_text(put(at, 1, 4), topic), 1, 4), i % partitions, 4);
        at = put(at, (int64_t)size, 4);
        memcpy(at, batch, size);
        c->request_bytes = (size_t)(at + size - c->request);
        put(c->request, (int64_t)c->request_bytes - 4, 4);
    }
    double cpu = cpu_seconds();
    int64_t began = now_ns(), now = began;
    for (left = 0; left < count; left++) ask(all + left);
    while (left) {
        Connection *c = next_ready(began + span_ns + GIVE_UP_S * INT64_C(1000000000), &events);
        if (!c) die("produce", "not all was answered in time");
        if (c->unsent && events & EPOLLOUT) {
            send_rest(c);
            if (!c->unsent) watch(c, 0);
        }
        uint8_t *answer;
        while ((answer = receive(c))) {
            check("produce", get(answer + 4 + 4 + 2 + strlen(topic) + 4 + 4, 2));
            now = now_ns();
            if (done < most) latencies_ns[done] = now - c->asked_ns[c->answered % MOST_OPEN];
            c->answered++, done++;
        }
        while (!c->unsent && now - began < span_ns && c->asked - c->answered < (uint64_t)open) ask(c);
        if (now - began >= span_ns && c->asked == c->answered && c->request) {
            free(c->request);
            c->request = NULL;
            left--;
        }
    }
    int64_t kept = done < most ? done : most;
    qsort(latencies_ns, (size_t)kept, sizeof *latencies_ns, ascending);
#define AT(share) (latencies_ns[(int64_t)((double)(kept - 1) * (share))] / 1e6)
    printf("{\"requests\": %" PRId64 ", \"bytes\": %" PRId64 ", \"seconds\": %.6f, \"client_cpu_seconds\": %.3f, "
           "\"p50_ms\": %.3f, \"p99_ms\": %.3f, \"p999_ms\": %.3f, \"max_ms\": %.3f}\n",
           done, done * (int64_t)size, (now - began) / 1e9, cpu_seconds() - cpu, AT(0.5), AT(0.99), AT(0.999), AT(1.0));
}

int main(int argc, char **argv) {
    if (argc > 4) topic = argv[4];
    if ((poller = epoll_create1(0)) < 0) die("epoll", strerror(errno));
    if (argc == 8 && !strcmp(argv[1], "fetch")) fetch(argv);
    else if (argc == 10 && !strcmp(argv[1], "produce")) produce(argv);
    else die(argv[0], "fetch | produce, see the top of raw.c");
    return 0;
}
