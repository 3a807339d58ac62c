/* Counts the bytes that large copies in user space move, to tell how often a payload is copied.
 *
 *     cc -O2 -shared -fPIC -o copies.so benches/serving/copies.c
 *     LD_PRELOAD=./copies.so target/dist/mlserver start MODELS
 *
 * Counts calls of memcpy and memmove that move at least 4 KiB, and prints their number and bytes when the process ends.
 * What the kernel copies into and out of its sockets comes on top: once for what is received, once for what is sent. */
#include <stddef.h>
#include <stdio.h>

#define LARGE 4096

static unsigned long calls, bytes;

static void count(size_t length) {
    if (length >= LARGE) {
        __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
        __atomic_add_fetch(&bytes, length, __ATOMIC_RELAXED);
    }
}

void *memmove(void *to, const void *from, size_t length) {
    void *start = to;
    count(length);
    if ((size_t)to - (size_t)from >= length) {
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(length) : : "memory");
    } else {
        char *last = (char *)to + length - 1;
        const char *source = (const char *)from + length - 1;
        __asm__ volatile("std; rep movsb; cld" : "+D"(last), "+S"(source), "+c"(length) : : "memory");
    }
    return start;
}

void *memcpy(void *restrict to, const void *restrict from, size_t length) {
    void *start = to;
    count(length);
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(length) : : "memory");
    return start;
}

__attribute__((destructor)) static void tell(void) {
    fprintf(stderr, "copies of 4 KiB and more: %lu calls, %lu bytes\n", calls, bytes);
}
