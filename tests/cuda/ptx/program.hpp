#pragma once

#include "values.hpp"

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// A PTX module after parsing: kernels as lists of instructions whose operands are places in the
// registers of a warp.

namespace zero::test::ptx {

struct Warp;
struct Instruction;

using Lanes = u32; ///< one bit for each lane of a warp
inline constexpr Lanes all_lanes = ~Lanes{0};
inline constexpr u32 warp_lanes = 32;

/// Runs an instruction for some lanes of a warp.
using Execute = void (*)(Warp&, Instruction const&, Lanes);

enum class Kind : u8 { plain, branch, call, leave, barrier, reducing_barrier, warp_wide, trap };
enum class Space : u8 { generic, global, shared, parameter, local };

/// The storage of a register: a predicate is one bit for each lane.
enum class Width : u8 { predicate = 1, four = 4, eight = 8 };

/// A register, or a register that holds a constant.
struct Operand {
    s32 at = -1; ///< byte in the registers of a warp; negative: none
    Width width = Width::four;
    bool is_inverted = false; ///< of predicates

    [[nodiscard]] bool exists() const { return at >= 0; }
};

struct Instruction {
    Execute execute = nullptr; ///< of plain and warp-wide instructions
    Kind kind = Kind::plain;
    Space space = Space::generic;
    u8 operation = 0; ///< which one of a family
    u8 elements = 1;  ///< of a vector
    u8 bytes = 4;     ///< of an element
    u8 sources = 0;   ///< number of source operands
    bool is_signed = false;
    bool flushes = false; ///< .ftz
    Operand guard;
    std::array<Operand, 9> operands; ///< destinations first
    s64 immediate = 0;               ///< offset of an address, table of lop3, index of a call
    u32 target = 0;                  ///< of a branch
};

/// A copy between the parameters of a caller and those of a function, in local memory.
struct FrameCopy {
    u32 from;
    u32 to;
    u32 bytes;
};

struct Call {
    std::string name;
    u32 target = 0;
    std::vector<FrameCopy> in;
    std::vector<FrameCopy> out;
};

enum class Special : u8 {
    thread_x,
    thread_y,
    thread_z,
    threads_x,
    threads_y,
    threads_z,
    block_x,
    block_y,
    block_z,
    blocks_x,
    blocks_y,
    blocks_z,
    lane,
    warp,
    lanes_less,
    lanes_up_to,
    lanes_greater,
    lanes_from,
    lanes_equal,
    multiprocessor,
    dynamic_shared_bytes
};

/// A register whose value does not change in a launch or in a block.
struct SpecialRegister {
    Operand place;
    Special what;
};
struct ConstantRegister {
    Operand place;
    u64 bits;
};

struct Range {
    u32 begin;
    u32 bytes;
};

struct Kernel {
    std::string name;
    std::vector<Instruction> code;
    std::vector<std::string> text; ///< of each instruction
    std::vector<Call> calls;
    std::vector<Range> parameters;
    std::vector<ConstantRegister> constants;
    std::vector<SpecialRegister> specials;
    u32 parameter_bytes = 0;
    u32 shared_bytes = 0;
    u32 local_bytes = 0;
    u32 register_bytes = 0;
    u32 most_threads = 1024;
    std::string defect; ///< why it cannot run; empty if it can
};

/// A variable in global memory.
struct Variable {
    std::vector<u8> initial;
    std::shared_ptr<void> memory; ///< null until the module is loaded
};

/// The text of a function. Each kernel that calls it gets a copy.
struct Function {
    std::string head;
    std::string body;
};

struct Module {
    std::string target; ///< such as sm_90
    std::map<std::string, Kernel> kernels;
    std::map<std::string, Variable> variables;
    std::map<std::string, Function> functions;
};

/// Reads the PTX of a module. A kernel with an instruction that is not known has a defect, which
/// names it. @throws std::runtime_error if the text is no PTX
std::shared_ptr<Module> parse(std::string const& text);

} // namespace zero::test::ptx
