#include <zero/host/instruction_set.hpp>

#include "host/kernel_inputs.hpp"

#include "support/catch.hpp"

#include <string>

namespace zero::test::instruction_set_kernel_test {

namespace {

using namespace zero::host;

TEST_CASE("The baseline is always supported, and the best set is chosen automatically",
          "[host][kernel]") {
    CHECK(is_supported(InstructionSet::baseline));
    CHECK(instruction_set()
          == (is_supported(InstructionSet::avx512) ? InstructionSet::avx512
              : is_supported(InstructionSet::avx2) ? InstructionSet::avx2
                                                   : InstructionSet::baseline));
    CHECK((!is_supported(InstructionSet::avx512) || is_supported(InstructionSet::avx2)));
    CHECK(std::string(name_of(InstructionSet::baseline)) == "baseline");
    CHECK(std::string(name_of(InstructionSet::avx2)) == "avx2");
    CHECK(std::string(name_of(InstructionSet::avx512)) == "avx512");
}

TEST_CASE("A set can be chosen temporarily, and only if the machine supports it",
          "[host][kernel]") {
    auto const before = instruction_set();
    {
        zero::test::WithInstructionSet const scope(InstructionSet::baseline);
        CHECK(scope.is_supported());
        CHECK(instruction_set() == InstructionSet::baseline);
        CHECK(use_instruction_set(InstructionSet::avx2) == is_supported(InstructionSet::avx2));
    }
    CHECK(instruction_set() == before);
}

} // namespace

} // namespace zero::test::instruction_set_kernel_test
