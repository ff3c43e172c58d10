/* Control of the emulated CUDA device, beside the CUDA runtime's own functions, exported by the same libcudart.so.13.
 * All text is UTF-8; returned pointers stay valid until the same thread's next call of the same function. */
#ifndef AICF_EMULATOR_H_
#define AICF_EMULATOR_H_

#ifdef __cplusplus
extern "C" {
#endif

/* "1 x86-64-v3": interface version, then the interpreter's instruction-set level. */
const char* aicfEmulatorVersion(void);

/* Options: checks = comma-separated subset of memcheck,initcheck,synccheck,racecheck,streamcheck (or "all", "none"); counters = 0|1;
 * workers = N (0: all cores); schedule = default|reversed|greedy|random; seed = N; instruction_limit = N (0: none); loop_limit = N (0:
 * none); max_reports = N (distinct findings kept per launch); memory_bytes = N (of each device; before the first allocation only; 8 GiB);
 * devices = N (before the first allocation only); mode = eager|deferred (when queued work runs: at once, or at a synchronisation in an
 * order drawn by seed); target = h200|h100|a100; zero_memory = 0|1 (fresh memory is zero, and a read of it a note). For programs that are
 * run as they are: print_reports = 0|1 (each finding on stderr when it happens), print_limit = N (distinct findings printed), summary =
 * 0|1|2 (their numbers on stderr at exit; 2: only where there are any), leak_check = 0|1 (what is still allocated at exit is a finding),
 * error_exitcode = N (the process's exit code where there were errors; 0: its own), summary_file = PATH (all as JSON, written anew with
 * each finding and at exit), report_file = PATH (each finding appended as a line of JSON, and each use of something unsupported). Returns
 * 0, or 1 (cudaErrorInvalidValue) with the reason in aicfEmulatorMessage(); CUDA's last error is left alone.
 *
 * At load, each option takes its default from the environment variable AICF_EMULATED_<NAME> (AICF_EMULATED_CHECKS=all, ...): for programs
 * that know nothing of these functions. With a name or a value there that means nothing, every call fails: CUDA's with
 * cudaErrorInitializationError (3), as aicfEmulatorSetOption does, and aicfEmulatorMessage() names the variable. */
int aicfEmulatorSetOption(const char* name, const char* value);
const char* aicfEmulatorGetOption(const char* name); /* NULL: no such option */
const char* aicfEmulatorOptionNames(void);           /* comma-separated */

/* Findings since the last call, as a JSON array of objects with the fields of Report in exec.hpp; then forgotten. */
const char* aicfEmulatorTakeReports(void);
/* One object {"kernel","grid","block","counts"} per launch made with counters on since the last call; then forgotten. */
const char* aicfEmulatorTakeCounters(void);
/* The same counts by PTX line, summed over the launches of each kernel since the last call: objects {"kernel","launches","lines"}, a line
 * being {"ptx_line","source","function","instruction","counts"} with the counts that are not zero; then forgotten. */
const char* aicfEmulatorTakeLines(void);
/* Live allocations as a JSON array of {"address","size_bytes","serial","kind","label"}: the leaks, at the end of a program. */
const char* aicfEmulatorAllocations(void);
/* Which of the bytes [address, address + size_bytes) the host or a kernel has written since they were allocated, as a JSON array of
 * [begin, end) offsets from the address, ascending. */
const char* aicfEmulatorWritten(unsigned long long address, unsigned long long size_bytes);
/* From now on nothing is written of the live allocation that begins at the address; its bytes stay as they are. Returns 0, or 1 where there
 * is none. */
int aicfEmulatorForgetWritten(unsigned long long address);
/* The long form of the last error of this thread (what cudaGetErrorString has no room for); "" when there is none. */
const char* aicfEmulatorMessage(void);
/* Forgets an error that has ended the context (700, 716, ...) and this thread's last error, and returns the former (0: there was none).
 * Memory, streams and modules stay as they are; cudaDeviceReset throws them away as well. */
int aicfEmulatorClearError(void);
/* The driver API's function of this name (any version of it); NULL: the emulated device has none. */
void* aicfEmulatorDriverFunction(const char* name);
/* Says on stderr, once a name, that the function is not implemented; returns 801 (cudaErrorNotSupported, CUDA_ERROR_NOT_SUPPORTED). */
int aicfEmulatorMissingFunction(const char* name);

#ifdef __cplusplus
}
#endif
#endif /* AICF_EMULATOR_H_ */
