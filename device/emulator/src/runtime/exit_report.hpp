// What a program that knows nothing of the emulator is told on stderr and in a file: findings as they happen, a summary at the end.
#pragma once

#include <cstdint>
#include <string>

#include "runtime.hpp"

namespace aicf::emu {

struct ExitOptions {
    bool print_reports = false;   // each finding when it happens
    uint32_t print_limit = 100;   // distinct findings printed
    int summary = 0;              // 1: the numbers of findings, at exit; 2: only where there are any
    bool leak_check = false;      // what is still allocated at exit is a finding
    int error_exitcode = 0;       // the process's exit code where there are errors; 0: its own
    std::string summary_file;     // JSON: everything found, counted and left over; written anew with each finding and at exit
};
ExitOptions& exit_options();

// Counts a finding, prints it where that is asked for, and keeps it for the file.
void note_finding(const Report& report);
void note_counters(const LaunchRecord& record);
// A function of the runtime that the emulated device does not have was called.
void note_unimplemented(const char* function);

// The process makes CUDA calls: there is something to say at its end.
void mark_runtime_used();

// Error findings since the process began.
uint64_t num_error_findings();

}  // namespace aicf::emu
