// Calls `Run` of onnxruntime's C interface again and again, so that the caller's language takes no part of the time.
// `evaluate.py` compiles this into a library, and passes the function and its eight arguments.
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef void *(*Run)(void *session, const void *options, const char *const *input_names, const void *const *inputs,
                     size_t input_count, const char *const *output_names, size_t output_count, void **outputs);

// Returns the nanoseconds of processor time that `calls` calls took, or -1 if one failed.
int64_t repeat(Run run, void *session, const char *const *input_names, const void *const *inputs, size_t input_count,
               const char *const *output_names, size_t output_count, void **outputs, int64_t calls) {
  struct timespec before, after;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  for (int64_t call = 0; call < calls; call++) {
    if (run(session, NULL, input_names, inputs, input_count, output_names, output_count, outputs) != NULL) {
      return -1;
    }
  }
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  return (int64_t)(after.tv_sec - before.tv_sec) * 1000000000 + (after.tv_nsec - before.tv_nsec);
}
