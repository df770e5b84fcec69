#include "support/catch.hpp"
#include "support/partition_numbers.hpp"

namespace zero::test::partition_numbers_test {

namespace {

template <class Partitioner, class Bucketer = SizeCappedBucketer>
PartitionNumbers gpt2(std::size_t world) {
    return partition_numbers<Partitioner, Bucketer>(gpt2_124m(), world);
}

template <class Partitioner, class Bucketer = SizeCappedBucketer>
PartitionNumbers llama(std::size_t world) {
    return partition_numbers<Partitioner, Bucketer>(llama_7b(), world);
}

} // namespace

TEST_CASE("Llama 7B has 291 tensors and 6738415616 elements") {
    CHECK(llama_7b().size() == llama_7b_tensors);
    CHECK(elements_of(llama_7b()) == llama_7b_elements);
    // Embedding and head of 32000 x 4096; 32 layers of 4 x 4096 x 4096, 3 x 4096 x 11008 and two
    // norms; one final norm.
    CHECK(llama_7b_elements
          == 2 * 131'072'000ULL + 32 * (4 * 16'777'216ULL + 3 * 45'088'768ULL + 2 * 4096) + 4096);
}

TEST_CASE("Balanced GPT-2 124M is as uneven as its largest parameter on 8 ranks and more") {
    CHECK(gpt2<BalancedPartitioner>(8).fullest
          == gpt2_embedding_elements); // alone on its rank, 2.48 times the mean
    CHECK(gpt2<BalancedPartitioner>(8).imbalance(8) == Approx(2.4813).epsilon(1e-4));
    CHECK(gpt2<BalancedPartitioner>(1024).fullest == gpt2_embedding_elements);
    CHECK(gpt2<BalancedPartitioner>(1024).imbalance(1024) == Approx(317.61).epsilon(1e-4));
    CHECK(gpt2<RoundRobinPartitioner>(8).fullest == 63'374'592);
    CHECK(gpt2<BalancedPartitioner>(8).padding == 0);
}

TEST_CASE("Llama 7B on 8 ranks is within 2 percent of the mean when balanced and 12 percent above "
          "it when assigned in turn") {
    CHECK(llama<BalancedPartitioner>(8).imbalance(8) < 1.02);
    CHECK(llama<RoundRobinPartitioner>(8).imbalance(8) > 1.11);
    // On 1024 ranks, embedding and head have one rank each: 131,072,000 against a mean of
    // 6,580,484.
    CHECK(llama<BalancedPartitioner>(1024).fullest == 131'072'000);
}

TEST_CASE("The whole group is padded once: to a multiple of 64 W") {
    // 124,439,808 = 64 * 1,944,372. The second factor rounds up to 1,944,384 for W = 64 and to
    // 1,944,576 for W = 1024.
    CHECK(gpt2<WholeGroupPartitioner>(64).padding == 12 * 64);
    CHECK(gpt2<WholeGroupPartitioner>(1024).padding == 204 * 64);
    CHECK(gpt2<DealtGroupPartitioner>(1024).padding == 204 * 64);
    CHECK(gpt2<WholeGroupPartitioner>(64).fullest == 1'944'384);
}

TEST_CASE("GPT-2 124M per tensor has 148 reductions and pads each parameter") {
    auto const numbers = gpt2<PerTensorPartitioner, ParameterBucketer>(64);
    CHECK(numbers.collectives == 148);
    // Sizes are padded to multiples of 4096. Of the 148 tensors 74 have 768 elements (3,328 of
    // padding), 12 have 2,304 (1,792) and 12 have 3,072 (1,024). The embedding has 3,328 of padding
    // and the other matrices none, because 768 * 768 = 144 * 4096.
    CHECK(numbers.padding == 74 * 3'328 + 12 * 1'792 + 12 * 1'024 + 3'328);
}

TEST_CASE("A dealt group keeps more gradients in flight than the whole group") {
    CHECK(gpt2<WholeGroupPartitioner>(8).leased_percent() == Approx(59.50).epsilon(1e-3));
    CHECK(gpt2<DealtGroupPartitioner>(8).leased_percent() == Approx(100).epsilon(1e-3));
    CHECK(gpt2<DealtGroupPartitioner>(8).collectives == 9);
    CHECK(gpt2<DealtGroupPartitioner>(1024).leased
          == gpt2<WholeGroupPartitioner>(1024)
                 .leased); // more ranks than parameters: the order does not change
}

} // namespace zero::test::partition_numbers_test
