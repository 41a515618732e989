/* One producer at a fixed rate, and consumers that wait at the end of the same partition: the time of a record to each of them.
 *
 * Like load.c it knows only the positions of a few numbers, which benchmarks/tails.py passes with the prepared frames. The time of
 * sending is found by a record's offset, so nothing is written into the records. A consumer sends its next Fetch as soon as it has an answer.
 *
 * One thread, epoll. The producer does not wait for its answers, except for the first one: its offset is where the consumers
 * begin. After `warm` seconds the line "begin" is printed and counting starts, at the end "end".
 *
 * Deliveries and answers are those between the two lines, also of records that were sent before. Times are those of all records that
 * were sent between the two lines: the program waits for them after the end, up to DRAIN_S. A record that has not arrived by then counts
 * with its waiting time, which is less than its real time: a broker that cannot follow has large times, and not few.
 *
 * Without consumers the records count as deliveries.
 *
 * usage: tails HOST PORT PRODUCE ERROR_AT FETCH OFFSET_AT RECORDS_AT SESSION_AT EPOCH_AT CONSUMERS RATE WARM SECONDS
 *        SESSION_AT and EPOCH_AT 0: without a session
 * prints: deliveries answers p50_us p99_us
 * exit status 1 and a line on stderr if there is an error
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER_BYTES = 4 << 20, SESSION_ID_AT = 15, FETCH_ERROR_AT = 13, DRAIN_S = 10 };

typedef struct {
    int fd, is_producer;
    char *frame, *answer;
    size_t have;
    int32_t next_id, epoch;
    int64_t offset;
} Connection;

static size_t produce_size, fetch_size;
static int error_at, offset_at, records_at, session_at, epoch_at;
static int64_t first_offset;
static uint64_t *sent_at; /* by offset - first_offset */
static size_t records_max, sent_count, latency_count, latency_max;
static uint32_t *latencies; /* 0.1 us */
static uint64_t count_from = UINT64_MAX, count_to = UINT64_MAX;
static long answers, deliveries;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "tails: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static char *read_frame(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*size);
    if (fread(bytes, 1, *size, file) != *size) die(path);
    fclose(file);
    return bytes;
}

static void put32(char *at, int32_t value) { value = (int32_t)htonl((uint32_t)value), memcpy(at, &value, 4); }
static int32_t get32(const char *at) { uint32_t value; memcpy(&value, at, 4); return (int32_t)ntohl(value); }
static int16_t get16(const char *at) { uint16_t value; memcpy(&value, at, 2); return (int16_t)ntohs(value); }
static int64_t get64(const char *at) { uint64_t value; memcpy(&value, at, 8); return (int64_t)be64toh(value); }

static void send_all(int fd, const char *bytes, size_t size) {
    while (size) {
        ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) { usleep(50); continue; }
        if (n <= 0) die("send");
        bytes += n, size -= (size_t)n;
    }
}

static Connection *connect_to(const char *host, const char *port, int epoll, const char *frame, size_t size) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    inet_pton(AF_INET, host, &address.sin_addr);
    Connection *c = calloc(1, sizeof *c);
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->frame = malloc(size);
    memcpy(c->frame, frame, size);
    c->answer = malloc(ANSWER_BYTES);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e);
    return c;
}

static void produce(Connection *c) {
    put32(c->frame + 8, c->next_id++);
    if (c->next_id > 1) sent_at[sent_count++] = now_ns(); /* the first one is not counted */
    send_all(c->fd, c->frame, produce_size);
}

static void fetch(Connection *c) {
    uint64_t wire = htobe64((uint64_t)c->offset);
    put32(c->frame + 8, c->next_id);
    memcpy(c->frame + offset_at, &wire, 8);
    if (session_at) put32(c->frame + epoch_at, c->epoch);
    send_all(c->fd, c->frame, fetch_size);
}

/* A record has reached a consumer, or has not until now. */
static void took(int64_t offset, uint64_t now) {
    uint64_t sent = sent_at[offset - first_offset];
    if (sent < count_from || latency_count >= latency_max) return;
    uint64_t tenths = (now - sent) / 100;
    latencies[latency_count++] = tenths > UINT32_MAX ? UINT32_MAX : (uint32_t)tenths;
}

/* The batches of an answer: each has its first offset and the number of records after that. */
static void take_records(Connection *c, size_t size) {
    if (size <= (size_t)records_at) return; /* an incremental answer without records */
    const char *at = c->answer + records_at;
    size_t length = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char byte = (unsigned char)*at++;
        length |= (size_t)(byte & 127) << shift;
        if (byte < 128) break;
    }
    const char *end = at + length - 1;
    uint64_t now = now_ns();
    while (length > 1 && at < end) {
        int64_t next = get64(at) + get32(at + 23) + 1;
        for (; c->offset < next; c->offset++) {
            if ((size_t)(c->offset - first_offset) >= sent_count) die("a record that was not sent");
            took(c->offset, now);
            deliveries += now >= count_from && now < count_to;
        }
        at += 12 + get32(at + 8);
    }
    answers += length > 1 && now >= count_from && now < count_to;
}

static void answered(Connection *c, size_t size) {
    errno = 0;
    if (c->is_producer) {
        if (get16(c->answer + error_at)) die("a record was refused");
        return;
    }
    if (get16(c->answer + FETCH_ERROR_AT)) die("a fetch was refused");
    if (get32(c->answer + 4) != c->next_id++) die("an answer out of order");
    if (session_at && !c->epoch) memcpy(c->frame + session_at, c->answer + SESSION_ID_AT, 4);
    c->epoch++;
    take_records(c, size);
    fetch(c);
}

static void receive(Connection *c) {
    ssize_t n = recv(c->fd, c->answer + c->have, ANSWER_BYTES - c->have, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) die("the peer hung up");
    c->have += (size_t)n;
    size_t size;
    while (c->have >= 4 && c->have >= (size = 4 + (size_t)get32(c->answer))) {
        answered(c, size);
        memmove(c->answer, c->answer + size, c->have - size);
        c->have -= size;
    }
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 14) {
        fprintf(stderr, "usage: tails HOST PORT PRODUCE ERROR_AT FETCH OFFSET_AT RECORDS_AT SESSION_AT EPOCH_AT CONSUMERS RATE WARM SECONDS\n");
        return 2;
    }
    char *produce_bytes = read_frame(argv[3], &produce_size), *fetch_bytes = read_frame(argv[5], &fetch_size);
    error_at = atoi(argv[4]), offset_at = atoi(argv[6]), records_at = atoi(argv[7]);
    session_at = atoi(argv[8]), epoch_at = atoi(argv[9]);
    int consumers = atoi(argv[10]), rate = atoi(argv[11]);
    double warm = atof(argv[12]), seconds = atof(argv[13]);
    records_max = (size_t)((warm + seconds + 5) * rate);
    sent_at = calloc(records_max, sizeof *sent_at);
    latency_max = records_max * (size_t)consumers;
    latencies = calloc(latency_max + 1, sizeof *latencies);

    int epoll = epoll_create1(0);
    Connection *producer = connect_to(argv[1], argv[2], epoll, produce_bytes, produce_size);
    producer->is_producer = 1;
    produce(producer);
    struct epoll_event events[256];
    while (producer->have < (size_t)error_at + 10) {
        if (epoll_wait(epoll, events, 1, 10000) != 1) die("no answer to the first record");
        ssize_t n = recv(producer->fd, producer->answer + producer->have, ANSWER_BYTES - producer->have, 0);
        if (n <= 0) die("the peer hung up");
        producer->have += (size_t)n;
    }
    errno = 0;
    if (get16(producer->answer + error_at)) die("the first record was refused");
    first_offset = get64(producer->answer + error_at + 2) + 1;
    producer->have = 0;
    Connection **all = calloc((size_t)consumers + 1, sizeof *all);
    for (int i = 0; i < consumers; i++) {
        Connection *c = all[i] = connect_to(argv[1], argv[2], epoll, fetch_bytes, fetch_size);
        c->offset = first_offset;
        fetch(c);
    }
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    long interval_ns = 1000000000L / rate;
    struct timespec interval = {interval_ns / 1000000000L, interval_ns % 1000000000L};
    struct itimerspec every = {interval, interval};
    timerfd_settime(timer, 0, &every, NULL);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &e);
    uint64_t begin = now_ns() + (uint64_t)(warm * 1e9), stop = begin + (uint64_t)(seconds * 1e9);
    size_t wanted = SIZE_MAX; /* the number of times, once the last record is sent */
    while (latency_count < wanted) {
        uint64_t now = now_ns();
        if (count_from == UINT64_MAX && now >= begin) {
            count_from = now;
            puts("begin");
            fflush(stdout);
        }
        if (wanted == SIZE_MAX && now >= stop) {
            count_to = now;
            puts("end");
            fflush(stdout);
            epoll_ctl(epoll, EPOLL_CTL_DEL, timer, NULL);
            size_t counted = 0;
            for (size_t i = 0; i < sent_count; i++) counted += sent_at[i] >= count_from;
            wanted = counted * (size_t)consumers;
            if (!consumers) deliveries = answers = (long)counted; /* the cost of the producer alone */
            continue;
        }
        if (now >= stop + DRAIN_S * 1000000000ull) break;
        int n = epoll_wait(epoll, events, 256, 1000);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr) { receive(events[i].data.ptr); continue; }
            uint64_t due = 0;
            if (read(timer, &due, sizeof due) != sizeof due) due = 0;
            while (due-- && sent_count < records_max) produce(producer);
        }
    }
    uint64_t now = now_ns();
    for (int i = 0; i < consumers; i++)
        for (int64_t offset = all[i]->offset; offset < first_offset + (int64_t)sent_count; offset++) took(offset, now);
    qsort(latencies, latency_count, sizeof *latencies, by_value);
    printf("%ld %ld %.1f %.1f\n", deliveries, answers, latencies[latency_count / 2] / 10.0,
           latencies[latency_count * 99 / 100] / 10.0);
    return 0;
}
