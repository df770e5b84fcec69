#include "figures.hpp"
#include "support/catch.hpp"

#include <zero/zero.hpp>

// Sizes in bytes of the objects that a caller holds, and of those created per piece, slice or
// command. tests/policy/shipped_policies_test.cpp checks that policies take no space.

using namespace zero;
using namespace zero::test;

TEST_CASE("Handles, engines and table rows are as large as the table says") {
#if defined(__x86_64__) && defined(__GLIBCXX__)
    using Stage = ZeroStage<2>;
    using Engine = Stage::EngineType;
    Figures const sizes{
        {"Weights", sizeof(Weights<Engine>)},
        {"Gradients", sizeof(Gradients<Engine>)},
        {"LossScale", sizeof(LossScale<HostBackend>)},
        {"StepTicket", sizeof(StepTicket<Engine>)},
        {"MicroSteps", sizeof(MicroSteps<Engine>)},
        {"StepReport", sizeof(StepReport)},
        {"ZeroStage<0>", sizeof(ZeroStage<0>)},
        {"ZeroStage<3, bfloat16>", sizeof(ZeroStage<3, Parameters<bfloat16>>)},
        {"ZeroStage<2, bfloat16 and float>", sizeof(ZeroStage<2, Parameters<bfloat16, float>>)},
        {"LoopbackCommunicator", sizeof(LoopbackCommunicator)},
        {"FlatLayout", sizeof(FlatLayout)},
        {"Piece", sizeof(Piece)},
        {"BucketPlan", sizeof(BucketPlan)},
        {"UpdateSlice of AdamW",
         sizeof(UpdateSlice<float, MasterPointers<float, bfloat16>, StatePointers<2, float>>)},
        {"InspectSlice", sizeof(InspectSlice<float>)},
        {"CopySlice", sizeof(CopySlice<float>)},
        {"host::Event", sizeof(host::Event)},
        {"host::Command", sizeof(host::Command)},
        {"host::InlineQueue", sizeof(host::InlineQueue)},
        {"host::ThreadedQueue", sizeof(host::ThreadedQueue)}};
    CHECK(check_figures(table_path("sizes"), sizes) == "");
#else
    SUCCEED("the table is for x86-64 and libstdc++");
#endif
}
