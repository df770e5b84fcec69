#pragma once

#include "cuda/ptx/findings.hpp"
#include "cuda/ptx/machine.hpp"
#include "cuda/ptx/memory.hpp"
#include "cuda/ptx/program.hpp"

#include <cstddef>
#include <string>
#include <vector>

// Runs kernels that are written in PTX.

namespace zero::test::ptx {

/// Global memory of 32-bit words for a kernel in a test.
class Words {
public:
    explicit Words(std::vector<u32> values, bool is_written = true) : _values(std::move(values)) {
        Memory::instance().add(_values.data(), _values.size() * sizeof(u32), MemoryKind::managed,
                               is_written);
    }
    Words(Words const&) = delete;
    Words& operator=(Words const&) = delete;
    ~Words() { Memory::instance().remove(_values.data()); }

    [[nodiscard]] std::vector<u32> const& values() const { return _values; }
    [[nodiscard]] u32* data() { return _values.data(); }

private:
    std::vector<u32> _values;
};

/// Returns the text of a module with one kernel, whose parameter is an address. At the start %rd1
/// holds that address, %rd2 that of the thread's word, and %r1 the number of the thread.
inline std::string kernel_text(std::string const& body, std::string const& functions = "") {
    return ".version 8.0\n.target sm_90\n.address_size 64\n" + functions
           + ".visible .entry k(.param .u64 .ptr .align 4 k_0)\n{\n"
             ".reg .pred %p<8>;\n.reg .b16 %h<8>;\n.reg .b32 %r<32>;\n.reg .b64 %rd<16>;\n"
             "ld.param.u64 %rd1, [k_0];\nmov.u32 %r1, %tid.x;\n"
             "mad.wide.u32 %rd2, %r1, 4, %rd1;\n"
           + body + "\nret;\n}\n";
}

/// The kinds of findings of one launch, separated by "; ".
struct Found {
    std::string what;
    std::string details; ///< places and first occurrences
};

/// Runs the kernel of a module once, and returns what was found.
inline Found run_text(std::string const& text, u32 threads, Words& memory, Dim grid = {}) {
    auto const module = parse(text);
    u32* argument = memory.data();
    void* const arguments[] = {&argument};
    Findings::instance().clear();
    launch(module->kernels.at("k"), grid, {threads}, arguments);
    Found found;
    for (auto const& [key, finding] : Findings::instance().all()) {
        found.what += (found.what.empty() ? "" : "; ") + key.first;
        found.details += key.second + '\n' + finding.first + '\n';
    }
    return found;
}

/// Selects a seed until the end of the scope.
class WithSeed {
public:
    explicit WithSeed(u64 seed) : _before(settings.seed) { settings.seed = seed; }
    WithSeed(WithSeed const&) = delete;
    WithSeed& operator=(WithSeed const&) = delete;
    ~WithSeed() { settings.seed = _before; }

private:
    u64 _before;
};

} // namespace zero::test::ptx
