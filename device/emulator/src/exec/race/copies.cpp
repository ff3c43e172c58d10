// One report for all copies of a place that unrolling has made, as long as they say the same.
#include <map>
#include <regex>

#include "../launch/engine.hpp"

namespace aicf::emu {
namespace {

// The text without what differs from copy to copy: PTX lines, addresses, threads and blocks, offsets.
std::string without_numbers(const std::string& text) {
    static const std::regex numbers("PTX line [0-9]+|0x[0-9a-f]+|\\([0-9]+,[0-9]+,[0-9]+\\)|\\b(is|byte|warp) [0-9]+");
    return std::regex_replace(text, numbers, "#");
}

std::string describe_copies(const Report& report) {
    constexpr size_t kMostShown = 6;
    std::string text = "  The same in " + std::to_string(report.copies.size()) +
                       (report.copies.size() == 1 ? " more copy" : " more copies") + " of this place (an unrolled loop), PTX lines";
    for (size_t i = 0; i < report.copies.size() && i < kMostShown; ++i) text += (i ? ", " : " ") + std::to_string(report.copies[i]);
    return text + (report.copies.size() > kMostShown ? ", ...\n" : "\n");
}

}  // namespace

void merge_copies(std::vector<Report>& reports) {
    if (reports.size() < 2) return;
    std::map<std::string, size_t> first;
    std::vector<Report> merged;
    for (Report& report : reports) {
        if (!report.source.empty()) {
            const auto [found, is_new] = first.try_emplace(report.kind + "\n" + without_numbers(report.text), merged.size());
            if (!is_new) {
                Report& kept = merged[found->second];
                kept.count += report.count;
                kept.copies.push_back(report.ptx_line);
                continue;
            }
        }
        merged.push_back(std::move(report));
    }
    for (Report& report : merged) {
        if (!report.copies.empty()) report.text += describe_copies(report);
    }
    reports = std::move(merged);
}

}  // namespace aicf::emu
