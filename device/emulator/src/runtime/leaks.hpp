// What a program leaves behind at its end.
#pragma once

#include "runtime.hpp"

namespace aicf::emu {

// Findings for allocations, streams, events, graphs, arrays and objects that are still there (option leak_check).
void note_leaks(Runtime& runtime);
// Findings for queued work that nothing ever waited for (deferred mode).
void note_unfinished_work(Runtime& runtime);

}  // namespace aicf::emu
