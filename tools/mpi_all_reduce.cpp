// Times MPI_Allreduce as `coshard bench redistribute` times ours: f32 sums of zeros in place,
// rounds of calls, the median of the rounds in microseconds. Started through mpirun by that bench;
// rank 0 prints one JSON object.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const char* separator = "{";
  for (const int kib : {4, 64, 1024, 16384}) {
    std::vector<float> data(static_cast<std::size_t>(kib) * 256);
    const int calls = kib <= 64 ? 400 : (kib <= 1024 ? 60 : 8);
    std::vector<double> rounds;
    for (int round = 0; round < 8; ++round) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = MPI_Wtime();
      for (int i = 0; i < calls; ++i)
        MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
      if (round > 0) rounds.push_back((MPI_Wtime() - begin) / calls * 1e6);
    }
    std::sort(rounds.begin(), rounds.end());
    if (rank == 0)
      std::printf("%s\"all_reduce_%dKiB\": %.3f", separator, kib, rounds[rounds.size() / 2]);
    separator = ", ";
  }
  if (rank == 0) std::puts("}");
  MPI_Finalize();
}
