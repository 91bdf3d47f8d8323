"""Values and transitions of transactional ids, recorded from Apache Kafka by a program in Java."""
