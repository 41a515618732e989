/* The floor: a C program that does only what any broker must do with the same bytes.
 *
 * Produce: receive, find the frames, check the CRC-32C of each batch (by the processor's instruction if there is one), append
 * with one write per receive, answer each frame; no sync. Fetch: find the frame, answer with a prepared head and the bytes of the file
 * by sendfile (or by pread and send). No threads, no allocation after the start, epoll.
 *
 * Like the load generator it gets the positions of fields instead of parsing: RECORDS_AT and RECORDS_TAIL bound the batch inside a
 * frame; OFFSET_AT is the position of the fetch offset. A frame is a Produce if its API key is 0, a Fetch if it is 1.
 *
 * usage: floor DATA_FILE PRODUCE_RESPONSE RECORDS_AT RECORDS_TAIL FETCH_HEAD FETCH_TAIL OFFSET_AT OFFSET_STEP BATCH_BYTES sendfile|pread
 * prints: PORT, then serves until it is killed.
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
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

enum { BUFFER_BYTES = 4 << 20, MAX_FRAMES = 8192 };

typedef struct {
    int fd;
    char *buffer;
    size_t have, seen; /* bytes in the buffer; of them already written to the file */
} Connection;

static char *produce_response, *fetch_head, *fetch_tail;
static size_t produce_response_size, fetch_head_size, fetch_tail_size;
static int data, records_at, records_tail, offset_at, use_sendfile;
static int64_t offset_step, batch_bytes;
static off_t data_end;

static void die(const char *what) { perror(what); exit(1); }

static char *slurp(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    if (!f) die(path);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*size + 1);
    if (*size && fread(bytes, 1, *size, f) != *size) die(path);
    fclose(f);
    return bytes;
}

#if defined(__x86_64__)
/* Three independent streams hide the instruction's latency, as the crc32c package does. */
static uint32_t shift_tables[2][4][256];
static uint32_t multiply(const uint32_t *matrix, uint32_t vector) {
    uint32_t sum = 0;
    for (; vector; vector >>= 1, matrix++) if (vector & 1) sum ^= *matrix;
    return sum;
}
static void square(uint32_t *out, const uint32_t *in) { for (int i = 0; i < 32; i++) out[i] = multiply(in, in[i]); }
static void make_table(uint32_t table[4][256], size_t zeros) {
    uint32_t even[32], odd[32];
    odd[0] = 0x82f63b78;
    for (int i = 1; i < 32; i++) odd[i] = 1u << (i - 1);
    square(even, odd);
    square(odd, even);
    uint32_t *now = even, *other = odd;
    for (;;) {
        square(now, other);
        zeros >>= 1;
        if (!zeros) break;
        uint32_t *t = now; now = other; other = t;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int k = 0; k < 4; k++) table[k][n] = multiply(now, n << (8 * k));
}
static uint32_t shift(uint32_t t[4][256], uint32_t c) { return t[0][c & 255] ^ t[1][c >> 8 & 255] ^ t[2][c >> 16 & 255] ^ t[3][c >> 24]; }
enum { LONG = 8192, SHORT = 256 };
__attribute__((target("sse4.2"))) static uint32_t crc32c(const char *p, size_t n) {
    uint64_t c = 0xffffffffu;
    for (int round = 0; round < 2; round++) {
        size_t block = round ? SHORT : LONG;
        while (n >= block * 3) {
            uint64_t c1 = 0, c2 = 0;
            for (const char *end = p + block; p < end; p += 8) {
                uint64_t a, b, d;
                memcpy(&a, p, 8), memcpy(&b, p + block, 8), memcpy(&d, p + 2 * block, 8);
                c = _mm_crc32_u64(c, a), c1 = _mm_crc32_u64(c1, b), c2 = _mm_crc32_u64(c2, d);
            }
            c = shift(shift_tables[round], (uint32_t)c) ^ c1;
            c = shift(shift_tables[round], (uint32_t)c) ^ c2;
            p += 2 * block, n -= 3 * block;
        }
    }
    for (; n >= 8; p += 8, n -= 8) { uint64_t a; memcpy(&a, p, 8); c = _mm_crc32_u64(c, a); }
    for (; n; p++, n--) c = _mm_crc32_u8((uint32_t)c, (uint8_t)*p);
    return (uint32_t)c ^ 0xffffffffu;
}
static void prepare_crc(void) { make_table(shift_tables[0], LONG); make_table(shift_tables[1], SHORT); }
#else
static uint32_t table[256];
static void prepare_crc(void) {
    for (uint32_t i = 0; i < 256; i++) { uint32_t c = i; for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0x82f63b78 : c >> 1; table[i] = c; }
}
static uint32_t crc32c(const char *p, size_t n) {
    uint32_t c = 0xffffffffu;
    while (n--) c = table[(c ^ (uint8_t)*p++) & 255] ^ c >> 8;
    return c ^ 0xffffffffu;
}
#endif

static void send_all(int fd, const char *bytes, size_t n, int flags) {
    while (n) {
        ssize_t done = send(fd, bytes, n, MSG_NOSIGNAL | flags);
        if (done < 0 && errno == EAGAIN) { usleep(20); continue; }
        if (done <= 0) return;
        bytes += done, n -= (size_t)done;
    }
}

static void fetch(int fd, const char *frame) {
    int64_t offset;
    memcpy(&offset, frame + offset_at, 8);
    off_t position = (off_t)((int64_t)be64toh((uint64_t)offset) / offset_step * batch_bytes);
    memcpy(fetch_head + 4, frame + 8, 4);
    send_all(fd, fetch_head, fetch_head_size, MSG_MORE);
    size_t left = (size_t)batch_bytes;
    static char block[BUFFER_BYTES];
    if (use_sendfile) {
        while (left) {
            ssize_t n = sendfile(fd, data, &position, left);
            if (n < 0 && errno == EAGAIN) { usleep(20); continue; }
            if (n <= 0) return;
            left -= (size_t)n;
        }
    } else {
        if (pread(data, block, left, position) != (ssize_t)left) return;
        send_all(fd, block, left, MSG_MORE);
    }
    send_all(fd, fetch_tail, fetch_tail_size, 0);
}

/* Whole frames are answered; the batches that one receive completed go to the file in one write. */
static int serve(Connection *c) {
    static struct iovec batches[MAX_FRAMES];
    static char *answers;
    if (!answers) answers = malloc(produce_response_size * MAX_FRAMES);
    size_t room = BUFFER_BYTES - c->have;
    if (c->have >= 4) { /* receive only the rest of a large frame: then no bytes of the next one have to be moved */
        uint32_t size;
        memcpy(&size, c->buffer, 4);
        size = ntohl(size) + 4;
        if (size > 256 << 10 && size > c->have && size - c->have < room) room = size - c->have;
    }
    ssize_t n = recv(c->fd, c->buffer + c->have, room, 0);
    if (n < 0 && errno == EAGAIN) return 1;
    if (n <= 0) return 0;
    c->have += (size_t)n;
    size_t at = 0, answer_bytes = 0;
    int count = 0;
    while (c->have - at >= 4 && count < MAX_FRAMES) {
        uint32_t size;
        memcpy(&size, c->buffer + at, 4);
        size = ntohl(size) + 4;
        if (size > BUFFER_BYTES) return 0;
        if (c->have - at < size) break;
        char *frame = c->buffer + at;
        if (frame[5] == 1) {
            fetch(c->fd, frame);
        } else {
            char *batch = frame + records_at;
            size_t bytes = size - (size_t)records_at - (size_t)records_tail;
            uint32_t expected;
            memcpy(&expected, batch + 17, 4);
            if (crc32c(batch + 21, bytes - 21) != ntohl(expected)) { fprintf(stderr, "floor: wrong checksum\n"); exit(1); }
            batches[count].iov_base = batch;
            batches[count++].iov_len = bytes;
            char *answer = answers + answer_bytes;
            memcpy(answer, produce_response, produce_response_size);
            memcpy(answer + 4, frame + 8, 4);
            answer_bytes += produce_response_size;
        }
        at += size;
    }
    for (int i = 0; i < count; i += 1024) {
        int some = count - i < 1024 ? count - i : 1024;
        ssize_t done = pwritev(data, batches + i, some, data_end);
        if (done < 0) die("pwritev");
        data_end += done;
    }
    if (answer_bytes) send_all(c->fd, answers, answer_bytes, 0);
    if (at) memmove(c->buffer, c->buffer + at, c->have - at), c->have -= at;
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 11) { fprintf(stderr, "floor: wrong number of arguments\n"); return 2; }
    data = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (data < 0) die(argv[1]);
    produce_response = slurp(argv[2], &produce_response_size);
    records_at = atoi(argv[3]), records_tail = atoi(argv[4]);
    fetch_head = slurp(argv[5], &fetch_head_size);
    fetch_tail = slurp(argv[6], &fetch_tail_size);
    offset_at = atoi(argv[7]), offset_step = atoll(argv[8]), batch_bytes = atoll(argv[9]);
    use_sendfile = strcmp(argv[10], "sendfile") == 0;
    prepare_crc();
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 512)) die("bind");
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < n; i++) {
            Connection *c = events[i].data.ptr;
            if (!c) {
                int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                if (fd < 0) continue;
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                c = calloc(1, sizeof *c);
                c->fd = fd;
                c->buffer = malloc(BUFFER_BYTES);
                e.data.ptr = c;
                epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
            } else if (!serve(c)) {
                close(c->fd);
                free(c->buffer);
                free(c);
            }
        }
    }
}
