#pragma once
#include <string>

#include "runtime.hpp"

namespace aicf::emu {

std::string quote(const std::string& text);
std::string to_json(const Dim3& dim);
std::string to_json(const Report& report);

// Option report_file: every report is also appended to this file, one JSON object a line, as soon as it is made, so that it outlives a
// program that ends however it likes. Empty: no file.
void set_report_file(const std::string& path);
std::string report_file();
void append_to_report_file(const Report& report);

// What a program asked for and the emulated device does not have: to the file only, as kind "unsupported".
void append_unsupported(const std::string& message);

}  // namespace aicf::emu
