// expect: zero::ZeroStage: the optimizer needs whole parameters, but the partitioner cuts them; use zero::BalancedPartitioner or zero::RoundRobinPartitioner.
#include "stage.hpp"

#include <zero/layout/whole_matrix_partitioner.hpp>
#include <zero/ops/lamb.hpp>

// `Muon` updates what is no matrix element by element; the norms of `Lamb` cover all parameters.
using Stage = zero::ZeroStage<2, zero::Lamb, zero::WholeMatrixPartitioner>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
