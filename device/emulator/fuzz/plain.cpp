// Drives a fuzz target where the compiler has no libFuzzer: mutants of a corpus from a seed, the same ones each time. No coverage guides
// it.
//
// PROGRAM -seconds=60 -seed=1 -prefix=found/ptx- -dict=FILE CORPUS...    (seconds of the processor; -seconds=0 FILE: that input alone)
//
// An input that crashes, or takes longer than kMostSeconds, is written to PREFIX and its number before the program ends.
#include <sanitizer/common_interface_defs.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr unsigned kMostSeconds = 20;    // for one input
constexpr size_t kMostBytes = 16 << 10;  // of one input, as with libFuzzer
constexpr uint32_t kMostChanges = 6;

std::string current;  // the input that runs
std::string where;    // to be written to

void keep_current() {
    std::ofstream(where, std::ios::binary).write(current.data(), static_cast<std::streamsize>(current.size()));
    std::fprintf(stderr, "the input is in %s\n", where.c_str());
}

void on_signal(int number) {
    keep_current();
    std::fprintf(stderr, number == SIGALRM ? "it did not end in %u s\n" : "abort\n", kMostSeconds);
    _exit(1);
}

std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string unescape(std::string_view text) {
    std::string plain;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && text.substr(i + 1, 1) == "x" && i + 3 < text.size()) {
            plain += static_cast<char>(std::stoi(std::string(text.substr(i + 2, 2)), nullptr, 16));
            i += 3;
        } else {
            plain += text[i];
        }
    }
    return plain;
}

// The words of a dictionary of libFuzzer's: one in quotes on each line.
std::vector<std::string> read_words(const std::string& path) {
    std::vector<std::string> words;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        const size_t begin = line.find('"'), end = line.rfind('"');
        if (!line.starts_with('#') && begin != end) words.push_back(unescape(std::string_view(line).substr(begin + 1, end - begin - 1)));
    }
    return words;
}

class Mutator {
public:
    Mutator(uint64_t seed, std::vector<std::string> words) : random_(seed), words_(std::move(words)) {}

    size_t draw(size_t below) { return below ? random_() % below : 0; }

    std::string mutate(std::string input, const std::string& other) {
        for (size_t left = 1 + draw(kMostChanges); left > 0; --left) change(input, other);
        if (input.size() > kMostBytes) input.resize(kMostBytes);
        return input;
    }

private:
    void change(std::string& input, const std::string& other) {
        const size_t at = draw(input.size() + 1), length = draw(std::min<size_t>(input.size() - at, 64) + 1);
        const size_t from = draw(other.size());
        switch (draw(7)) {
            case 0: input.erase(at, length); break;
            case 1: input.insert(at, input.substr(at, length)); break;
            case 2: input.replace(at, length, other, from, 1 + draw(64)); break;
            case 3: input.insert(at, 1, static_cast<char>(random_())); break;
            case 4:
                if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << draw(8)));
                break;
            case 5:
                for (size_t i = 0; i < 4 && at + i < input.size(); ++i) input[at + i] = kEdges[draw(std::size(kEdges))];
                break;
            default:
                if (!words_.empty()) input.replace(at, length, words_[draw(words_.size())]);
        }
    }

    static constexpr char kEdges[] = {0, 1, 0x7f, static_cast<char>(0x80), static_cast<char>(0xff), '9', '-'};
    std::mt19937_64 random_;
    std::vector<std::string> words_;
};

struct Options {
    double seconds = 60;
    uint64_t seed = 1;
    std::string prefix = "found-";
    std::string dictionary;
    std::vector<std::string> corpus;
};

Options read_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        const auto value = [&](std::string_view name) { return argument.starts_with(name) ? argv[i] + name.size() : nullptr; };
        if (const char* seconds = value("-seconds=")) {
            options.seconds = std::atof(seconds);
        } else if (const char* seed = value("-seed=")) {
            options.seed = std::strtoull(seed, nullptr, 10);
        } else if (const char* prefix = value("-prefix=")) {
            options.prefix = prefix;
        } else if (const char* dictionary = value("-dict=")) {
            options.dictionary = dictionary;
        } else if (std::filesystem::is_directory(argument)) {
            for (const auto& entry : std::filesystem::directory_iterator(argument)) options.corpus.push_back(read_file(entry.path()));
        } else {
            options.corpus.push_back(read_file(argument));
        }
    }
    std::sort(options.corpus.begin(), options.corpus.end());  // a folder lists its files in any order
    return options;
}

void run(std::string input) {
    current = std::move(input);
    alarm(kMostSeconds);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current.data()), current.size());
    alarm(0);
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = read_options(argc, argv);
    const std::vector<std::string>& corpus = options.corpus;
    if (corpus.empty()) {
        std::fprintf(stderr, "no corpus: name a folder or files\n");
        return 2;
    }
    where = options.prefix + "seed" + std::to_string(options.seed);
    __sanitizer_set_death_callback(keep_current);
    std::signal(SIGALRM, on_signal);
    std::signal(SIGABRT, on_signal);

    for (const std::string& input : corpus) run(input);
    Mutator mutator(options.seed, read_words(options.dictionary));
    unsigned long long mutants = 0;
    const clock_t end = std::clock() + static_cast<clock_t>(options.seconds * CLOCKS_PER_SEC);
    for (; std::clock() < end; ++mutants) {
        run(mutator.mutate(corpus[mutator.draw(corpus.size())], corpus[mutator.draw(corpus.size())]));
    }
    std::printf("%zu inputs and %llu mutants of them, seed %llu: none crashed\n", corpus.size(), mutants,
                static_cast<unsigned long long>(options.seed));
    return 0;
}
