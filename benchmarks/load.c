/* A load generator for length-framed protocols: prepared frames out, framed responses in.
 *
 * Of Kafka it knows only the positions of a few numbers: the correlation id (byte 8 of a frame, byte 4 of a response), the error
 * code of the response, and, for fetches, the fetch offset. The Python side (benchmarks/frames.py) prepares the frames and
 * passes the positions, so the same generator drives Ottla, the floor and any other broker with the same bytes.
 *
 * One thread, epoll, non-blocking sockets. Each connection keeps `inflight` requests in flight. Latency is from the moment that a
 * request's bytes are passed to the kernel to the moment that its response is complete.
 *
 * usage: load HOST PORT FRAME CONNECTIONS INFLIGHT REQUESTS ERROR_AT [OFFSET_AT OFFSET_STEP OFFSET_LIMIT]
 * prints: requests seconds sent_bytes received_bytes p50_us p99_us p999_us
 * exit status 1 and a line on stderr if a response has an error or the peer closes the connection.
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
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MAX_INFLIGHT = 1024, RECEIVE_BYTES = 1 << 20 };

typedef struct {
    int fd, writable_wanted;
    char *frame;               /* this connection's own copy: the correlation id is patched in place */
    size_t written;            /* bytes of the frame that is being sent */
    int under_way;             /* sent completely, not yet answered */
    int32_t next_id, expected_id;
    uint64_t sent_at[MAX_INFLIGHT];
    char head[64];             /* the first bytes of the response, up to the last number that is read */
    size_t have;               /* bytes of the current response seen, its length prefix included */
    size_t want;               /* its whole size, once the prefix has arrived */
} Connection;

static char *frame_bytes;
static size_t frame_size, received_total, sent_total;
static long requests_left, answers_left, answered;
static int error_at, offset_at = -1, inflight;
static int64_t offset_step, offset_limit, offset_next;
static uint32_t *latencies;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "load: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static void prepare(Connection *c) {
    uint32_t id = htonl((uint32_t)c->next_id);
    memcpy(c->frame + 8, &id, 4);
    if (offset_at >= 0) {
        uint64_t wire = htobe64((uint64_t)offset_next);
        memcpy(c->frame + offset_at, &wire, 8);
        offset_next += offset_step;
        if (offset_next >= offset_limit) offset_next = 0;
    }
}

/* Small frames of one connection go out in one writev, as a pipelining client sends them. */
static void send_some(Connection *c, int epoll) {
    for (;;) {
        if (c->written == 0) {
            if (requests_left == 0 || c->under_way >= inflight) break;
            if (frame_size <= 4096 && inflight > 1) {
                static char joined[MAX_INFLIGHT * 4096];
                size_t bytes = 0;
                int count = 0;
                while (requests_left > 0 && c->under_way + count < inflight) {
                    prepare(c);
                    c->next_id++, requests_left--;
                    memcpy(joined + bytes, c->frame, frame_size);
                    bytes += frame_size, count++;
                }
                uint64_t now = now_ns();
                for (int i = 0; i < count; i++) c->sent_at[(c->next_id - count + i) % MAX_INFLIGHT] = now;
                c->under_way += count;
                size_t done = 0;
                while (done < bytes) {
                    ssize_t n = send(c->fd, joined + done, bytes - done, MSG_NOSIGNAL);
                    if (n < 0 && errno == EAGAIN) { usleep(50); continue; }
                    if (n <= 0) die("send");
                    done += (size_t)n;
                }
                sent_total += bytes;
                continue;
            }
            prepare(c);
            requests_left--;
        }
        ssize_t n = send(c->fd, c->frame + c->written, frame_size - c->written, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno != EAGAIN) die("send");
            if (!c->writable_wanted) {
                struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
                epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &e);
                c->writable_wanted = 1;
            }
            return;
        }
        if (c->written == 0) c->sent_at[c->next_id % MAX_INFLIGHT] = now_ns();
        c->written += (size_t)n;
        sent_total += (size_t)n;
        if (c->written == frame_size) {
            c->written = 0;
            c->next_id++;
            c->under_way++;
        }
    }
    if (c->writable_wanted) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &e);
        c->writable_wanted = 0;
    }
}

static void answer(Connection *c) {
    int32_t id;
    int16_t code;
    memcpy(&id, c->head + 4, 4);
    memcpy(&code, c->head + error_at, 2);
    errno = 0;
    if ((int32_t)ntohl((uint32_t)id) != c->expected_id) die("a response out of order");
    if (code != 0) {
        fprintf(stderr, "load: a response with error code %d\n", (int16_t)ntohs((uint16_t)code));
        exit(1);
    }
    latencies[answered++] = (uint32_t)((now_ns() - c->sent_at[c->expected_id % MAX_INFLIGHT]) / 100);
    c->expected_id++;
    c->under_way--;
    answers_left--;
    c->have = c->want = 0;
}

static void receive(Connection *c) {
    static char buffer[RECEIVE_BYTES];
    ssize_t n = recv(c->fd, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) die("the peer hung up");
    received_total += (size_t)n;
    char *at = buffer, *end = buffer + n;
    while (at < end) {
        size_t take = (c->want ? c->want : 4) - c->have;
        if (take > (size_t)(end - at)) take = (size_t)(end - at);
        if (c->have < sizeof c->head) {
            size_t keep = sizeof c->head - c->have;
            memcpy(c->head + c->have, at, keep < take ? keep : take);
        }
        c->have += take;
        at += take;
        if (!c->want && c->have == 4) {
            uint32_t size;
            memcpy(&size, c->head, 4);
            c->want = 4 + ntohl(size);
        }
        if (c->want && c->have == c->want) answer(c);
    }
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 8 && argc != 11) {
        fprintf(stderr, "usage: load HOST PORT FRAME CONNECTIONS INFLIGHT REQUESTS ERROR_AT [OFFSET_AT STEP LIMIT]\n");
        return 2;
    }
    FILE *file = fopen(argv[3], "rb");
    if (!file) die(argv[3]);
    fseek(file, 0, SEEK_END);
    frame_size = (size_t)ftell(file);
    rewind(file);
    frame_bytes = malloc(frame_size);
    if (fread(frame_bytes, 1, frame_size, file) != frame_size) die(argv[3]);
    fclose(file);
    int connections = atoi(argv[4]);
    inflight = atoi(argv[5]);
    long requests = atol(argv[6]);
    error_at = atoi(argv[7]);
    if (argc == 11) offset_at = atoi(argv[8]), offset_step = atoll(argv[9]), offset_limit = atoll(argv[10]);
    if (connections < 1 || inflight < 1 || inflight > MAX_INFLIGHT || requests < 1 || error_at > 60) die("bad arguments");
    requests_left = answers_left = requests;
    latencies = malloc(sizeof *latencies * (size_t)requests);

    int epoll = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    inet_pton(AF_INET, argv[1], &address.sin_addr);
    Connection *all = calloc((size_t)connections, sizeof *all);
    for (int i = 0; i < connections; i++) {
        int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address)) die("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        all[i].fd = fd;
        all[i].frame = malloc(frame_size);
        memcpy(all[i].frame, frame_bytes, frame_size);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &all[i]};
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
    }
    uint64_t start = now_ns();
    for (int i = 0; i < connections; i++) send_some(&all[i], epoll);
    while (answers_left > 0) {
        struct epoll_event events[64];
        int n = epoll_wait(epoll, events, 64, 30000);
        if (n == 0) { errno = 0; die("no answer for 30 seconds"); }
        for (int i = 0; i < n; i++) {
            Connection *c = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(c);
            send_some(c, epoll);
        }
    }
    double seconds = (double)(now_ns() - start) / 1e9;
    qsort(latencies, (size_t)answered, sizeof *latencies, by_value);
    printf("%ld %.6f %zu %zu %.1f %.1f %.1f\n", answered, seconds, sent_total, received_total, latencies[answered / 2] / 10.0,
           latencies[answered * 99 / 100] / 10.0, latencies[answered * 999 / 1000] / 10.0);
    return 0;
}
